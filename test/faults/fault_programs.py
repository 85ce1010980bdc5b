"""Random fault programs: a job, and what goes wrong in it when. A seed makes the same program everywhere.

A block of as many seeds as there are kinds of faults has each kind once, in an order of its own: a short run
has nearly all of them. The rest is drawn: when, where, whether two happen, what the ranks do meanwhile.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

# What a rank does to itself. The first group can happen at any instant, by a thread of the rank; the second
# is what a script does, so it happens between two of its statements.
AT_ANY_INSTANT = ("killed", "segfault", "stopped", "os_exit", "os_exit_0")
BY_THE_SCRIPT = ("sys_exit", "sys_exit_0", "exception", "rank_disk_full", "rank_pipe_closed")
OF_A_RANK = (*AT_ANY_INSTANT, *BY_THE_SCRIPT)
# What happens to horovodrun: a signal, or its output goes nowhere.
TO_THE_LAUNCHER = ("launcher_term", "launcher_int", "launcher_killed")
TO_ITS_OUTPUT = ("reader_gone", "stdout_disk_full", "files_disk_full")
BETWEEN = ("wrapper_killed", "mpirun_killed")
BETWEEN_HOSTS = ("ssh_killed", "daemon_killed")
TO_A_HOST = ("host_cut", "host_killed", "host_unlinked")
KINDS = (*OF_A_RANK, *TO_THE_LAUNCHER, *TO_ITS_OUTPUT, *BETWEEN, *BETWEEN_HOSTS, *TO_A_HOST)
LOSES_A_HOST = (*BETWEEN_HOSTS, *TO_A_HOST)
SILENT = (
    "host_cut",
    "host_unlinked",
)  # no connection is closed: what happened can only be told after a while
# Kinds that a second fault may follow: what is seen of the others depends on when somebody writes or looks.
FOLLOWED = (*OF_A_RANK, "wrapper_killed", *TO_A_HOST)

LARGE = 4_000_000  # elements: some 100 ms of an allreduce, for a fault to fall into
STALL_WARNING, STALL_SHUTDOWN = (
    2.0,
    4.0,
)  # seconds; a healthy rank of a busy machine must not be taken for stalled
HOST_SILENCE = (
    5.0  # after which Open MPI's daemons give a host up: keepalive, see horovod.runner.launchers.open_mpi
)
PATIENCE = 30.0  # beyond the limit that applies
# Between two faults. Most jobs have ended half a second after the first; a script's own end takes a while
# until others can know of it.
SHORTEST_GAP, SHORTEST_AFTER_SCRIPT = 0.15, 2.5


@dataclass(frozen=True)
class Moment:
    """When a fault happens.

    phase: "starting": `seconds` after the rank's program began, before or in init(); "training": after
    init(); "step": before the allreduce number `step`; "inside": `seconds` after that was submitted.
    """

    phase: str
    seconds: float = 0.0
    step: int = 0


@dataclass(frozen=True)
class Fault:
    """rank: whose it is, or -1. code: the exit code, where the fault has one. gap: of a second fault, seconds
    after the first; it has no moment.
    """

    kind: str
    rank: int = -1
    code: int = 0
    moment: Moment = Moment("training")
    gap: float = 0.0


@dataclass(frozen=True)
class Program:
    """hosts: ranks of each host. sizes: elements of the allreduces, over and over. full_after: KiB of output
    that the disk has room for, where it is to be full.
    """

    seed: int
    hosts: tuple[int, ...]
    sizes: tuple[int, ...]
    codec: str
    checkpoint_every: int
    burst_every: int
    full_after: int
    faults: tuple[Fault, ...]

    @property
    def ranks(self) -> int:
        return sum(self.hosts)

    def host_of(self, rank: int) -> int:
        """0 for the launcher's."""
        return int(rank >= self.hosts[0])

    def ranks_of_last_host(self) -> tuple[int, ...]:
        """The host that faults TO_A_HOST happen to: never the launcher's own."""
        return tuple(range(self.ranks - self.hosts[-1], self.ranks))

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def program_of(seed: int) -> Program:
    draw = random.Random(f"fault program {seed}")
    kind = _kind_of(seed)
    hosts = _hosts(draw, kind)
    ranks = sum(hosts)
    sizes = [
        draw.choice((draw.randint(1, 1000), draw.randint(1000, 300_000))) for _ in range(draw.randint(1, 3))
    ]
    sizes.append(draw.randint(LARGE // 2, LARGE))
    draw.shuffle(sizes)
    large = max(range(len(sizes)), key=lambda at: sizes[at])
    first = Fault(
        kind,
        draw.randrange(ranks) if kind in (*OF_A_RANK, "wrapper_killed") else -1,
        _code(draw, kind),
        _moment(draw, kind, large, len(sizes)),
    )
    faults = [first]
    if kind in FOLLOWED and draw.random() < 0.4 and (second := _second(draw, first, hosts)):
        faults.append(second)
    return Program(
        seed,
        hosts,
        tuple(sizes),
        draw.choice(("", "bit8/128")),
        draw.choice((0, 0, 7)),
        1 if kind in TO_ITS_OUTPUT else draw.choice((0, 0, 5)),
        draw.randint(40, 400),
        tuple(faults),
    )


def _kind_of(seed: int) -> str:
    block, at = divmod(seed, len(KINDS))
    return random.Random(f"kinds {block}").sample(KINDS, len(KINDS))[at]


def _hosts(draw: random.Random, kind: str) -> tuple[int, ...]:
    ranks = draw.randint(2, 4)
    if kind in LOSES_A_HOST or draw.random() < 0.4:
        on_first = draw.randint(1, ranks - 1)
        return (on_first, ranks - on_first)
    return (ranks,)


def _code(draw: random.Random, kind: str) -> int:
    """Not those that stand for signals, nor those by which shells say that there is no such command."""
    if kind in ("sys_exit", "os_exit"):
        return draw.choice((1, 2, 3, draw.randint(4, 125)))
    return 1 if kind in ("exception", "rank_disk_full", "rank_pipe_closed") else 0


def _moment(draw: random.Random, kind: str, large: int, period: int) -> Moment:
    early = Moment("starting", draw.uniform(0.0, 1.0))
    later = Moment("training", draw.uniform(0.0, 2.0))
    if kind in TO_ITS_OUTPUT:
        return later
    if kind not in OF_A_RANK:
        return draw.choice((early, later, later, later))
    step = Moment("step", step=draw.randint(0, 20))
    inside = Moment("inside", draw.uniform(0.0, 0.04), large + period * draw.randint(0, 3))
    return draw.choice((early, later, step, inside, inside))


def _second(draw: random.Random, first: Fault, hosts: tuple[int, ...]) -> Fault | None:
    """On a rank that the first has nothing to do with; None when there is none."""
    lost = range(sum(hosts) - hosts[-1], sum(hosts)) if first.kind in TO_A_HOST else (first.rank,)
    others = [rank for rank in range(sum(hosts)) if rank not in lost]
    kind = draw.choice(AT_ANY_INSTANT)
    shortest = SHORTEST_AFTER_SCRIPT if first.kind in BY_THE_SCRIPT else SHORTEST_GAP
    gap = shortest + draw.choice((draw.uniform(0.0, 0.3), draw.uniform(0.0, 2.5)))
    return Fault(kind, draw.choice(others), _code(draw, kind), gap=gap) if others else None


def limit_of(kind: str) -> float:
    """Seconds in which nobody can know of this fault, or need not."""
    if kind == "stopped":
        return STALL_SHUTDOWN
    return HOST_SILENCE if kind in LOSES_A_HOST else 0.0
