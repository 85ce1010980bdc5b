"""How each MPI is asked to start ranks: one file per family, pure functions from a job to a command line."""

from __future__ import annotations

import os
from collections.abc import Callable

from horovod.common.build_info import ANY, build_info
from horovod.common.mpi_here import family_of, folders, mpi_here, version_text
from horovod.common.unbuilt import why_unbuilt
from horovod.runner import errors
from horovod.runner.launchers import hydra, open_mpi, open_mpi_4
from horovod.runner.launchers.job import Job

# Name of the flavour -> the options for its mpirun, all but the command.
FLAVOURS: dict[str, Callable[[Job], list[str]]] = {
    "Open MPI 5": open_mpi.options,
    "Open MPI 4": open_mpi_4.options,
    "Spectrum MPI": open_mpi_4.spectrum_options,
    "MPICH": hydra.mpich_options,
    "Intel MPI": hydra.intel_options,
}


def command(job: Job, flavour: str) -> list[str]:
    """The whole command line that starts the job; LaunchError when this MPI cannot start it."""
    return [job.mpirun, *FLAVOURS[flavour](job), *job.more_arguments, *job.rank_command]


def flavour_of(version_text: str) -> str:
    """The flavour that `mpirun --version` shows; "" for none that we know."""
    if "Spectrum MPI" in version_text:
        return "Spectrum MPI"
    if "Open MPI" in version_text or "OpenRTE" in version_text:
        number = version_text.replace("(", " ").replace(")", " ").split()
        majors = [int(word.partition(".")[0]) for word in number if word[:1].isdigit() and "." in word]
        return "Open MPI 5" if majors and majors[0] >= 5 else "Open MPI 4"
    if "Intel(R) MPI" in version_text:
        return "Intel MPI"
    return "MPICH" if "HYDRA" in version_text.upper() or "MPICH" in version_text else ""


def installed_mpirun() -> str:
    """The mpirun of the MPI that this installation uses: one job never mixes two."""
    if why := why_unbuilt():
        raise errors.unbuilt(why=why)
    recorded = build_info().mpi
    mpi = mpi_here(recorded)
    if not mpi.built and recorded.source == ANY:
        raise errors.no_mpi(folders=list(map(str, folders())))
    if not mpi.built:
        raise errors.built_without_mpi()
    path = mpi.mpirun_path()
    if recorded.source == ANY and not os.access(path, os.X_OK):
        raise errors.mpirun_not_on_path(library=mpi.library)
    if recorded.source == ANY and (family := family_of(version_text(path))) not in ("", mpi.name):
        raise errors.mpirun_of_another(path=path, got=family, expected=mpi.name, library=mpi.library)
    if not os.access(path, os.X_OK):
        raise errors.mpirun_missing(path=path, mpi=f"{mpi.name} {mpi.version}")
    return path


def installed_flavour(mpirun: str) -> str:
    """Ask mpirun who it is."""
    said = version_text(mpirun)
    flavour = flavour_of(said)
    if not flavour:
        raise errors.mpirun_unknown(path=mpirun, known=list(FLAVOURS), said=said.strip() or "nothing")
    return flavour
