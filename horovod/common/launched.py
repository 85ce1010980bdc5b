"""How this process was started: what launchers report in environment variables, and the consequences.

LAUNCHERS is the only table of launchers, with how the ranks of each meet: by MPI, in a store or a folder, or
by horovodrun's agents (`horovod.common.rendezvous`). A process with no way to the other ranks is refused, as
it would be a job by itself, unless the launcher says that there is only one process. If variables of several
launchers are set, MPI's decide, then the agents': horovodrun may run in a job of Slurm.

agent_messages has the names of the agents' variables, because each rank's wrapper needs them too: importing
this module would double its start time.
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from horovod.common import errors, notes
from horovod.common.agent_messages import LOCAL_RANK, LOCAL_SIZE, RANK, SIZE
from horovod.common.agent_messages import VARIABLE as AGENT_VARIABLE

_FOLDER_VARIABLE = "HOROVOD_RENDEZVOUS_FOLDER"
_MOST_HOSTS = 100_000  # a mistyped range must not fill the memory
_DIGITS = "[0-9]{1,9}"  # longer numbers are mistakes
_RANGE = re.compile(rf"({_DIGITS})(?:-({_DIGITS}))?")
# How ranks meet: by MPI; in torch's store at MASTER_ADDR; in such a store on the first host that the launcher
# names; in a folder; in the store of horovodrun's driver, through their agents; not at all.
MPI, STORE, FIRST_HOST, FOLDER, AGENT, NOWHERE = "MPI", "store", "first host", "folder", "agent", ""


class Launcher(NamedTuple):
    """A launcher of processes, and its variables for size and rank; "" if it has none.

    Without ``always_says_size``, rank 0 alone proves nothing: a batch script of Slurm has SLURM_PROCID=0
    though it runs once, and other programs may set RANK.
    """

    name: str
    size: str
    rank: str
    local_size: str = ""
    local_ranks: tuple[str, ...] = ()  # one number, under the names of related launchers
    meets: str = NOWHERE
    always_says_size: bool = True
    instead: str = errors.START
    job: tuple[str, ...] = ()  # variables that distinguish its jobs, the same on all ranks
    sign: str = ""  # without this variable, it has not started the process
    hosts: tuple[str, ...] = ()  # FIRST_HOST: variables that list the hosts, in order of preference
    host: str = ""  # FIRST_HOST: the variable with the index of this host in that list

    @property
    def forms_mpi_jobs(self) -> bool:
        return self.meets == MPI


OPEN_MPI = Launcher(
    "Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", ("OMPI_COMM_WORLD_LOCAL_RANK",), meets=MPI,
)  # fmt: skip
PMI = Launcher(
    "a launcher that speaks PMI, as MPICH's and Intel MPI's mpirun do,", "PMI_SIZE", "PMI_RANK",
    "MPI_LOCALNRANKS", ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"), meets=MPI,
)  # fmt: skip
_PMIX = Launcher("a launcher that speaks PMIx", "", "PMIX_RANK", meets=MPI)
_PMIX_SERVER = "PMIX_SERVER_URI"  # followed by a version
_TORCHRUN = Launcher(
    "torchrun, or another launcher of torch.distributed,", "WORLD_SIZE", "RANK",
    meets=STORE, always_says_size=False,
    # Not TORCHELASTIC_RESTART_COUNT, which each host counts, nor MASTER_ADDR: a host has many names.
    job=("TORCHELASTIC_RUN_ID",),
)  # fmt: skip
_MEETING_POINT = ("MASTER_ADDR", "MASTER_PORT")
_TORCHRUN_WORKER, _WITHIN_HOST = "TORCHELASTIC_RUN_ID", "LOCAL_RANK"
# Not SLURM_NTASKS, the allocation's: a batch script, which runs once, has it too.
_SRUN = Launcher(
    "srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", meets=FIRST_HOST, always_says_size=False,
    instead="`horovodrun python train.py`, without `srun`, in the batch script",
    job=("SLURM_JOB_ID", "SLURM_STEP_ID"),
    hosts=("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"), host="SLURM_NODEID",
)  # fmt: skip
_AGENTS = Launcher("horovodrun", SIZE, RANK, LOCAL_SIZE, (LOCAL_RANK,), meets=AGENT, sign=AGENT_VARIABLE)
_HOROVOD = Launcher("Horovod's launcher for Gloo, Ray and Spark", SIZE, RANK)
_INNERMOST = (_TORCHRUN, _HOROVOD)  # may have been started by any other launcher

LAUNCHERS = (  # the first with all variables counts
    *(OPEN_MPI, PMI, _PMIX, _AGENTS, _TORCHRUN, _HOROVOD, _SRUN),
    Launcher("mpirun_rsh of MVAPICH2", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    Launcher("jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK"),
    Launcher("Flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK"),
    Launcher("PALS, HPE Cray's mpiexec,", "", "PALS_RANKID"),
    Launcher("ALPS, Cray's aprun,", "", "ALPS_APP_PE"),
)
LOCAL_RANKS = tuple(name for launcher in LAUNCHERS for name in launcher.local_ranks)

# A rank's mark for the processes that it starts: its process id, and its rank in its job.
MARK = "HOROVOD_JOINED_BY"


_NO_LAUNCHER = Launcher("no launcher", "", "")


class Launch(NamedTuple):
    """The job that this process was started in. ``meets``: how its ranks meet."""

    size: int  # 0: its launcher does not say
    evidence: str  # as "OMPI_COMM_WORLD_SIZE=4"; "" without a launcher
    meets: str = NOWHERE
    rank: int = 0  # with MPI, MPI knows it
    launcher: Launcher = _NO_LAUNCHER

    def job(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """The job's identity, equal on all its ranks."""
        return tuple(environment.get(name, "") for name in self.launcher.job)


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

    @property
    def is_whole(self) -> bool:
        return self.size is not None and self.rank is not None


def detect(environment: Mapping[str, str]) -> Launch:
    """The job that the environment describes; ALONE for none, or for one rank without MPI.

    ValueError, with the variables and a remedy: this process is one of several that it cannot join. Its
    launcher is not served, its variables are incomplete or contradict each other, or its parent is the rank.
    """
    by_mpi = _said(environment, [launcher for launcher in LAUNCHERS if launcher.forms_mpi_jobs])
    if by_mpi and not _is_torchruns_within_step(environment, by_mpi):
        launch = _mpi_job(environment, by_mpi)
        _refuse_torchrun_within(environment, launch)
    elif not by_mpi and (by_agent := _said(environment, [_AGENTS])):
        size, rank = _size_and_rank(environment, by_agent[0])
        launch = Launch(size, by_agent[0].evidence, AGENT, rank)  # even for one rank: horovodrun may wait
        _refuse_torchrun_within(environment, launch)
    else:
        others = [each for each in LAUNCHERS if not each.forms_mpi_jobs and each is not _AGENTS]
        launch = _other_job(environment, _said(environment, others))
    if launch.evidence:
        _refuse_child_of_rank(environment, launch)
    return launch


def of_several(environment: Mapping[str, str]) -> str:
    """The evidence that this process is one of several, as "WORLD_SIZE=2", or "". ValueError as detect()."""
    said = _said(environment, LAUNCHERS)
    sized = [each for each in said if each.size is not None]  # PMIx, without a size, is left to others
    return ", ".join(each.evidence for each in sized or said if each.is_of_several)


def leave_mark(environment: MutableMapping[str, str]) -> None:
    """Make hvd.init() fail in processes that this rank starts, unless a launcher starts them."""
    environment[MARK] = f"{os.getpid()} {_rank_of_job(environment)}"


def _said(environment: Mapping[str, str], launchers: Iterable[Launcher]) -> list[_Said]:
    """The values of each launcher whose variables are set. ValueError for a wrong size."""
    all_said = []
    for launcher in launchers:
        texts = {n: environment[n] for n in (launcher.rank, launcher.size) if environment.get(n)}
        if not texts or (launcher.sign and launcher.sign not in environment):
            continue
        size = _number(texts.get(launcher.size, "1"))
        if not size:
            name, value, unset = launcher.name, texts[launcher.size], _unset(environment)
            raise errors.no_size(setting=launcher.size, value=value, launcher=name, unset=unset)
        evidence = ", ".join(f"{name}={text}" for name, text in texts.items())
        known = size if launcher.size in texts else None
        all_said.append(_Said(launcher, known, _number(texts.get(launcher.rank, "")), evidence))
    return all_said


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def _mpi_job(environment: Mapping[str, str], said: Sequence[_Said]) -> Launch:
    """A job of MPI, with the first size that a launcher gives."""
    by_pmix = any(each.launcher is _PMIX for each in said)
    if by_pmix and not any(name.startswith(_PMIX_SERVER) for name in environment):
        rank = f"{_PMIX.rank}={environment[_PMIX.rank]}"
        raise errors.no_pmix_server(evidence=rank, setting=_PMIX_SERVER, unset=_unset(environment))
    evidence = ", ".join(each.evidence for each in said)
    size = next((each.size for each in said if each.size is not None), None)
    if size is None and not by_pmix:
        wanted = " and ".join(each.launcher.size for each in said)
        raise errors.mpi_without_size(evidence=evidence, setting=wanted, unset=_unset(environment))
    # srun --mpi=pmix sets no size of PMIx.
    return Launch(size or _number(environment.get(_SRUN.size, "")) or 0, evidence, MPI)


def _is_torchruns_within_step(environment: Mapping[str, str], by_mpi: Sequence[_Said]) -> bool:
    """Whether torchrun has started this process in a task of srun's.

    Then PMI and PMIx variables that srun has set describe the task, not the process. (Ranks of horovodrun
    --ddp under MPI have the same variables, but also horovodrun's pipe.)
    """
    if _TORCHRUN_WORKER not in environment or notes.VARIABLE in environment:
        return False
    task, tasks = _number(environment.get(_SRUN.rank, "")), _number(environment.get(_SRUN.size, ""))
    return task is not None and all(
        each.launcher is not OPEN_MPI and each.rank == task and each.size in (None, tasks) for each in by_mpi
    )


def _other_job(environment: Mapping[str, str], said: Sequence[_Said]) -> Launch:
    """The job of the first launcher with all values, if no other contradicts it. For jobs not of MPI."""
    several = [each for each in said if each.is_of_several]
    if not several:
        return ALONE
    winner = next((each for each in several if each.is_whole), several[0])
    for other in said:
        if other.is_of_several or other.size is not None:
            _refuse_contradiction(environment, winner, other)
    size, rank = _size_and_rank(environment, winner)
    meets = FOLDER if environment.get(_FOLDER_VARIABLE, "").strip() else winner.launcher.meets
    if meets == NOWHERE:
        raise errors.no_way_to_others(**_facts(environment, winner), setting=_FOLDER_VARIABLE)
    if meets == STORE:
        _refuse_nowhere(environment, winner)
    return Launch(size, winner.evidence, meets, rank, winner.launcher)


def _size_and_rank(environment: Mapping[str, str], said: _Said) -> tuple[int, int]:
    launcher, size, rank = said.launcher, said.size, said.rank
    facts = _facts(environment, said)
    if size is None and launcher.size:
        raise errors.size_not_set(**facts, setting=launcher.size)
    if size is None:
        raise errors.size_not_said(**facts)
    if rank is None and (value := environment.get(launcher.rank)):
        raise errors.rank_no_number(**facts, setting=launcher.rank, value=value)
    if rank is None:
        raise errors.rank_not_set(**facts, setting=launcher.rank)
    if rank >= size:
        raise errors.rank_not_below_size(**facts, size=size, last=size - 1)
    return size, rank


def _facts(environment: Mapping[str, str], said: _Said) -> dict[str, str]:
    """Facts for errors: the launcher, the evidence, and two remedies."""
    who = {"launcher": said.launcher.name, "instead": said.launcher.instead}
    return {**who, "evidence": said.evidence, "unset": _unset(environment)}


def _refuse_nowhere(environment: Mapping[str, str], said: _Said) -> None:
    """ValueError without a meeting point: ranks would wait for each other at different ones."""
    missing = [name for name in _MEETING_POINT if not environment.get(name)]
    if missing:
        raise errors.no_meeting_point(**_facts(environment, said), settings=missing)
    port = environment["MASTER_PORT"]
    if not 0 < (_number(port) or 0) < 65536:
        raise errors.no_master_port(**_facts(environment, said), value=port)


def _refuse_contradiction(environment: Mapping[str, str], winner: _Said, other: _Said) -> None:
    """ValueError if two differ, unless one is within srun's only task, or numbers processes within hosts."""
    is_within = winner.launcher in _INNERMOST and other.launcher not in _INNERMOST
    if is_within and (other.size == 1 or environment.keys() & {_TORCHRUN_WORKER, _WITHIN_HOST}):
        return
    for differs in ("size", "rank"):
        one, another = getattr(winner, differs), getattr(other, differs)
        if None not in (one, another) and one != another:
            theirs = {"other": other.evidence, "other_launcher": other.launcher.name}
            raise errors.launchers_differ(**_facts(environment, winner), **theirs, differs=differs)


def _refuse_torchrun_within(environment: Mapping[str, str], launch: Launch) -> None:
    """ValueError if one rank of MPI's became several processes: MPI takes them for the same one."""
    size = environment.get(_TORCHRUN.size, "")
    if _TORCHRUN_WORKER in environment and size != str(launch.size):
        starter = "mpirun" if launch.meets == MPI else "horovodrun"
        outer = {"launcher": starter, "evidence": launch.evidence, "unset": _unset(environment)}
        raise errors.torchrun_inside(**outer, size=size, setting=_TORCHRUN.size)


def _refuse_child_of_rank(environment: Mapping[str, str], launch: Launch) -> None:
    """ValueError for a child of a rank: it would be taken for the rank, unknown to the other ranks."""
    pid, _, rank_of_job = environment.get(MARK, "").partition(" ")
    if not pid or pid == str(os.getpid()) or rank_of_job != _rank_of_job(environment):
        return  # a rank that has become another program by exec is still that rank
    evidence, unset = launch.evidence, _unset(environment)
    raise errors.child_of_rank(process=os.getpid(), parent=pid, evidence=evidence, unset=unset)


def _rank_of_job(environment: Mapping[str, str]) -> str:
    """The same text for all processes that have inherited the variables of one rank.

    Only MPI's variables, if it has set any: libraries set RANK and the like later, in ranks too.
    """
    mpi = [launcher for launcher in LAUNCHERS if launcher.forms_mpi_jobs]
    names = ["PMIX_NAMESPACE", *(launcher.rank for launcher in mpi)]
    if not any(environment.get(launcher.rank) for launcher in mpi):
        names += [AGENT_VARIABLE, _FOLDER_VARIABLE, *_MEETING_POINT]
        for launcher in LAUNCHERS:
            names += [launcher.rank, *launcher.job]
    return " ".join(environment.get(name, "-") for name in names)


def _unset(environment: Mapping[str, str]) -> str:
    """The options of `env` that start a process as a job by itself."""
    names = [name for launcher in LAUNCHERS for name in (launcher.rank, launcher.size) if name in environment]
    return " ".join(f"-u {name}" for name in dict.fromkeys(names))


def node_names(text: str) -> list[str]:
    """Slurm's list of hosts: `node[001-003,7],gpu[1-2]x` as [node001, node002, node003, node7, gpu1x, gpu2x].

    ValueError for a wrong list; its text completes a sentence that begins with the list.
    """
    names: list[str] = []
    for part in filter(None, re.split(r",(?![^\[]*\])", text)):  # at commas outside brackets
        pieces = re.split(r"\[([^\]]*)\]", part)  # odd positions were in brackets
        if any("[" in piece for piece in pieces[::2]):
            raise errors.no_host_list(value=part)
        choices = [_numbers_in(piece, part) if at % 2 else [piece] for at, piece in enumerate(pieces)]
        if len(names) + math.prod(map(len, choices)) > _MOST_HOSTS:
            raise errors.too_many_hosts(most=_MOST_HOSTS)
        names += map("".join, itertools.product(*choices))  # the last bracket varies fastest
    return names


def _numbers_in(inside: str, part: str) -> list[str]:
    """`001-003,7` as [001, 002, 003, 7], at most one more than _MOST_HOSTS. ValueError for anything else."""
    numbers: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise errors.no_host_list(value=part)
        first, last = int(match[1]), int(match[2] or match[1])
        last = min(last, first + _MOST_HOSTS - len(numbers))
        numbers += [f"{number:0{len(match[1])}}" for number in range(first, last + 1)]
    return numbers
