"""Helper functions of Horovod's API for scripts: facts of the build, versions, lists, environment."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import itertools
import os
import re
import sysconfig
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from horovod import _native as native
from horovod.common import errors
from horovod.common.build_info import build_info
from horovod.common.exceptions import HorovodVersionMismatchError
from horovod.common.mpi_here import mpi_here
from horovod.common.sentences import did_you_mean

__all__ = [
    "ccl_built", "check_extension", "check_installed_version", "cuda_built", "ddl_built", "env",
    "extension_available", "get_average_backwards_compatibility_fun", "get_ext_suffix",
    "get_extension_full_path", "gloo_built", "gpu_available", "is_iterable", "is_version_greater_equal_than",
    "mpi_built", "nccl_built", "num_rank_is_power_2", "split_list",
]  # fmt: skip

T = TypeVar("T")
OP_NAMES = ("hvd.Average", "hvd.Sum", "hvd.Adasum", "hvd.Min", "hvd.Max", "hvd.Product")


def get_ext_suffix() -> str:
    """File suffix of extension modules of this interpreter, such as ".cpython-311-x86_64-linux-gnu.so"."""
    return str(sysconfig.get_config_var("EXT_SUFFIX") or ".so")


def get_extension_full_path(pkg_path: str, *args: str) -> str:
    """Path of the extension ``args`` beside the file ``pkg_path``, with this interpreter's suffix."""
    return str(Path(pkg_path).parent.joinpath(*args)) + get_ext_suffix()


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raise ImportError unless the extension, which ``ext_env_var`` builds, is beside ``pkg_path``."""
    path = get_extension_full_path(pkg_path, *args)
    if not Path(path).exists():
        raise errors.not_built(extension=ext_name, path=path, setting=ext_env_var)


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the face of a framework ("torch") can be imported: the framework and the core are installed."""
    available = all(map(_can_be_found, (f"horovod.{ext_base_name}", ext_base_name, "horovod._native")))
    if verbose and not available:
        print(f"horovod.{ext_base_name} is not available: the framework or the native core is missing.")
    return available


def _can_be_found(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # a parent is missing, or horovod.common.absent refuses the name
        return False


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether this was built with CUDA, and this process sees a GPU. Starts CUDA in this process."""
    if not (extension_available(ext_base_name, verbose) and cuda_built()):
        return False
    facts = native.gpu_facts()
    if verbose and facts.why_none:
        print(f"No GPU: {facts.why_none}.")
    return facts.count > 0


def cuda_built(verbose: bool = False) -> bool:
    """Whether this build serves CUDA tensors."""
    return native.device_library_is_installed()


def mpi_built(verbose: bool = False) -> bool:
    """Whether this build has an MPI transport; for a wheel, whether it finds a usable MPI here."""
    return mpi_here(build_info().mpi).built


def gloo_built(verbose: bool = False) -> bool:
    """Always False: the core's own transports replace Gloo."""
    return False


def nccl_built(verbose: bool = False) -> int:
    """The version code of torch's or the system's NCCL, 22809 for 2.28.9; 0 without one, or without a GPU."""
    if not cuda_built():
        return 0
    facts = native.gpu_facts()
    if verbose and facts.why_no_nccl:
        print(f"No NCCL: {facts.why_no_nccl}.")
    return facts.nccl_version


def ddl_built(verbose: bool = False) -> bool:
    """Always False: IBM's DDL is no longer maintained."""
    return False


def ccl_built(verbose: bool = False) -> bool:
    """Always False: oneCCL is not used."""
    return False


@contextmanager
def env(**kwargs: str | None) -> Iterator[None]:
    """Environment variables set (or, for None, removed) inside the block and restored after it."""
    before = {name: os.environ.get(name) for name in kwargs}
    try:
        _assign_environment(kwargs)
        yield
    finally:
        _assign_environment(before)


def _assign_environment(values: dict[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def split_list(items: Sequence[T], num_parts: int) -> list[list[T]]:
    """``items`` in ``num_parts`` parts, in order. Lengths differ by one at most, the longer ones first."""
    length, longer = divmod(len(items), num_parts)
    starts = [i * length + min(i, longer) for i in range(num_parts + 1)]
    return [list(items[begin:end]) for begin, end in itertools.pairwise(starts)]


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether ``num_rank`` is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def is_iterable(x: Any) -> bool:
    """Whether ``iter(x)`` works."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compare the leading "major.minor.patch" of two versions, ignoring suffixes as "+cpu" and "rc1"."""
    return _leading_numbers(ver) >= _leading_numbers(target)


def _leading_numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version) if isinstance(version, str) else None
    if match is None:
        raise errors.no_version(version=version)
    return tuple(int(number) for number in match.groups())


def check_installed_version(name: str, version: str, exception: BaseException | None = None) -> None:
    """HorovodVersionMismatchError, from ``exception``, unless the installed ``name`` is ``version``."""
    installed = importlib.metadata.version(name)
    if installed != version:
        raise HorovodVersionMismatchError(name, version, installed) from exception


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Callable[[int | None, bool | None], int]:
    """The function of ``op`` and the deprecated ``average`` that returns a reduce op, by default Average."""

    def handle_average_backwards_compatibility(op: int | None, average: bool | None) -> int:
        if average is None:
            if isinstance(op, str):
                hint = did_you_mean(f"hvd.{op}", OP_NAMES)
                raise errors.op_is_text(op=op, choices=list(OP_NAMES), hint=hint)
            return int(reduce_ops.Average if op is None else op)
        if op is not None:
            raise errors.op_and_average()
        warnings.warn(
            "Parameter average has been replaced by op: write op=Average or op=Sum.",
            DeprecationWarning,
            stacklevel=3,
        )
        return int(reduce_ops.Average if average else reduce_ops.Sum)

    return handle_average_backwards_compatibility
