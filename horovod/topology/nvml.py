"""NVML, the library of NVIDIA's driver with facts of GPUs, through its Python package nvidia-ml-py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from horovod.topology import errors

Nvml = Any  # the module pynvml, which lacks types
_DRIVER = Path("/proc/driver/nvidia/version")


@contextmanager
def opened() -> Iterator[Nvml | None]:
    """pynvml, usable inside the `with`; None without a driver.

    RuntimeError, with the reason, if there is a driver that cannot be used, or that fails.
    """
    try:
        import pynvml
    except ImportError:
        if _DRIVER.exists():
            raise errors.nvml_missing() from None
        yield None
        return
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        yield None
        return
    except pynvml.NVMLError as error:
        raise errors.nvml_failed(why=str(error)) from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise errors.nvml_failed(why=str(error)) from None
    finally:
        pynvml.nvmlShutdown()


def asked(nvml: Nvml, function: str, *arguments: object) -> Any:
    """The result of a function of NVML; None if this GPU or driver does not know it."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None
