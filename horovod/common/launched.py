"""How this process was started: what launchers say about it in environment variables, and what follows.

LAUNCHERS is the one table of them. MPI forms the jobs of some. Of the others hvd.init() knows no way to the
other ranks, and each process would be a job of its own: that is refused, unless the launcher says that there
is one process only. Where several speak, MPI's decides: horovodrun may have been called in a job of Slurm.

runner/rank.py, which starts each rank, repeats the names that it needs: importing this module would double
the time it takes. A test compares them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import NamedTuple

__all__ = [
    "ALONE", "LAUNCHERS", "LOCAL_RANKS", "MARK", "Launch", "Launcher", "detect", "leave_mark", "of_several",
]  # fmt: skip

_START = "`horovodrun -np N python train.py`"


class Launcher(NamedTuple):
    """Who starts processes, and in which variables it tells each its place; "" where it has none.

    Without ``always_says_size``, its rank 0 means nothing by itself: a batch script of Slurm has
    SLURM_PROCID=0 though it runs once, and RANK may be anybody's variable.
    """

    name: str
    size: str
    rank: str
    local_size: str = ""
    local_ranks: tuple[str, ...] = ()  # one number, under the names that relatives give it
    forms_mpi_jobs: bool = False
    always_says_size: bool = True
    instead: str = _START


_OPEN_MPI = Launcher(
    name="Open MPI's mpirun",
    size="OMPI_COMM_WORLD_SIZE",
    rank="OMPI_COMM_WORLD_RANK",
    local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
    local_ranks=("OMPI_COMM_WORLD_LOCAL_RANK",),
    forms_mpi_jobs=True,
)
_PMI = Launcher(
    name="a launcher that speaks PMI, as MPICH's and Intel MPI's mpirun do,",
    size="PMI_SIZE",
    rank="PMI_RANK",
    local_size="MPI_LOCALNRANKS",
    local_ranks=("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
    forms_mpi_jobs=True,
)
_PMIX = Launcher("a launcher that speaks PMIx", "", "PMIX_RANK", forms_mpi_jobs=True)
_PMIX_SERVER = "PMIX_SERVER_URI"  # followed by a version
# Not SLURM_NTASKS: that is the allocation's, and a batch script, which runs once, has it too.
_SRUN = Launcher(
    name="srun",
    size="SLURM_STEP_NUM_TASKS",
    rank="SLURM_PROCID",
    always_says_size=False,
    instead="`horovodrun python train.py`, without `srun`, in the batch script",
)
_TORCHRUN = Launcher(
    name="torchrun, or another launcher of torch.distributed,",
    size="WORLD_SIZE",
    rank="RANK",
    always_says_size=False,
)
_TORCHRUN_WORKER = "TORCHELASTIC_RUN_ID"

LAUNCHERS = (
    _OPEN_MPI,
    _PMI,
    _PMIX,
    _SRUN,
    _TORCHRUN,
    Launcher("Horovod's launcher for Gloo, Ray and Spark", "HOROVOD_SIZE", "HOROVOD_RANK"),
    Launcher("mpirun_rsh of MVAPICH2", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    Launcher("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    Launcher("Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    Launcher("PALS, HPE Cray's mpiexec,", "", "PALS_RANKID"),
    Launcher("ALPS, Cray's aprun,", "", "ALPS_APP_PE"),
)
LOCAL_RANKS = tuple(name for launcher in LAUNCHERS for name in launcher.local_ranks)

# What a rank leaves to the processes that it starts: its process id, and which rank of which job it is.
MARK = "HOROVOD_JOINED_BY"


class Launch(NamedTuple):
    """What is known of the job that this process was started in."""

    size: int  # 0: its launcher does not say
    evidence: str  # as "OMPI_COMM_WORLD_SIZE=4"; "" without a launcher


ALONE = Launch(1, "")


class _Said(NamedTuple):
    launcher: Launcher
    size: int | None  # None: does not say
    rank: int | None
    evidence: str

    @property
    def is_of_several(self) -> bool:
        if self.size is None and self.launcher.always_says_size:
            return True
        return self.size not in (None, 1) or bool(self.rank)


def detect(environment: Mapping[str, str]) -> Launch:
    """The job that the environment tells of; ALONE where it is no job, or one of a single rank without MPI.

    ValueError, with the variables and with what to do, where this process is one of several and cannot join
    the others: its launcher is not served, or contradicts itself, or has started not this process but a rank
    that this process is a child of.
    """
    by_mpi = _said(environment, [launcher for launcher in LAUNCHERS if launcher.forms_mpi_jobs])
    if by_mpi:
        launch = _mpi_job(environment, by_mpi)
        _refuse_torchrun_within(environment, launch)
        _refuse_child_of_rank(environment, launch)
        return launch
    for each in _said(environment, LAUNCHERS):
        if each.is_of_several:
            raise ValueError(
                f"{each.launcher.name} has started this process as one of several ({each.evidence}), and "
                "hvd.init() finds the others only in a job of mpirun: it would be alone. Use "
                f"{each.launcher.instead}. {_way_out(environment)}"
            )
    return ALONE


def of_several(environment: Mapping[str, str]) -> str:
    """What says that this process is one of several, whoever serves them, as "WORLD_SIZE=2"; "" if nothing.

    ValueError, as in detect(), for a size that is none.
    """
    said = _said(environment, LAUNCHERS)
    sized = [each for each in said if each.size is not None]  # PMIx, which never says, is left to others
    return ", ".join(each.evidence for each in sized or said if each.is_of_several)


def leave_mark(environment: MutableMapping[str, str]) -> None:
    """Have hvd.init() refused in processes that this rank starts, unless a launcher starts them anew."""
    environment[MARK] = f"{os.getpid()} {_rank_of_job(environment)}"


def _said(environment: Mapping[str, str], launchers: Iterable[Launcher]) -> list[_Said]:
    """What each of them says that says anything. ValueError for a size that is none."""
    all_said = []
    for launcher in launchers:
        texts = {n: environment[n] for n in (launcher.rank, launcher.size) if environment.get(n)}
        if not texts:
            continue
        size = _number(texts.get(launcher.size, "1"))
        if not size:
            raise ValueError(
                f"{launcher.size}={texts[launcher.size]} is no number of processes, and {launcher.name} sets "
                f"it to one. Start the job with {_START}. {_way_out(environment)}"
            )
        evidence = ", ".join(f"{name}={text}" for name, text in texts.items())
        known = size if launcher.size in texts else None
        all_said.append(_Said(launcher, known, _number(texts.get(launcher.rank, "")), evidence))
    return all_said


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _mpi_job(environment: Mapping[str, str], said: Sequence[_Said]) -> Launch:
    """Its size, as the first says that knows."""
    by_pmix = any(each.launcher is _PMIX for each in said)
    if by_pmix and not any(name.startswith(_PMIX_SERVER) for name in environment):
        raise ValueError(
            f"{_PMIX.rank}={environment[_PMIX.rank]} says that a launcher has started this process, but no "
            f"{_PMIX_SERVER}... says where it is, and only it knows the other ranks. Start the job with "
            f"{_START}. {_way_out(environment)}"
        )
    evidence = ", ".join(each.evidence for each in said)
    size = next((each.size for each in said if each.size is not None), None)
    if size is None and not by_pmix:
        wanted = " and ".join(each.launcher.size for each in said)
        raise ValueError(
            f"{evidence} says that this process is one rank of a job, but {wanted} is not set: nobody says "
            f"of how many. Start the job with {_START}. {_way_out(environment)}"
        )
    # srun --mpi=pmix
    return Launch(size or _number(environment.get(_SRUN.size, "")) or 0, evidence)


def _refuse_torchrun_within(environment: Mapping[str, str], launch: Launch) -> None:
    """One rank of MPI's became several processes, which MPI takes for the same one."""
    size = environment.get(_TORCHRUN.size, "")
    if _TORCHRUN_WORKER in environment and size != str(launch.size):
        raise ValueError(
            f"torchrun has started this process as one of {size} ({_TORCHRUN.size}={size}), inside of a job "
            f"of mpirun with another number of ranks ({launch.evidence}), and hvd.init() joins that only. "
            f"Use {_START}, without torchrun. {_way_out(environment)}"
        )


def _refuse_child_of_rank(environment: Mapping[str, str], launch: Launch) -> None:
    """MPI would take a rank's child for the rank, and the other ranks know nothing of it."""
    pid, _, rank_of_job = environment.get(MARK, "").partition(" ")
    if not pid or pid == str(os.getpid()) or rank_of_job != _rank_of_job(environment):
        return  # a rank that has become another program is still that rank
    raise ValueError(
        f"process {os.getpid()} was started by process {pid}, a rank that has called hvd.init(), and has its "
        f"variables ({launch.evidence}). A rank is one process: leave hvd.init() and collectives to it. "
        f"Another job is started with horovodrun or horovod.run(), also from here. {_way_out(environment)}"
    )


def _rank_of_job(environment: Mapping[str, str]) -> str:
    """The same for all processes that have inherited the variables of one rank."""
    names = ("PMIX_NAMESPACE", *(launcher.rank for launcher in LAUNCHERS if launcher.forms_mpi_jobs))
    return " ".join(environment.get(name, "-") for name in names)


def _way_out(environment: Mapping[str, str]) -> str:
    names = [name for launcher in LAUNCHERS for name in (launcher.rank, launcher.size) if name in environment]
    unset = " ".join(f"-u {name}" for name in names)
    return f"For a process that shall work alone, unset the variables: `env {unset} python train.py`"
