"""Random programs of failure: a job, its events and their times. A seed gives the same program everywhere.

In this folder `failure_programs` draws programs; `failing_rank` is each rank of a job, and with PyTorch
`failing_worker`; `failure_places` are hosts for jobs; `failure_runner` carries a program out; `failure_judge`
returns complaints about the job; and `run_failures` is the command line. There are three kinds:

fixed: the job should end at once, with the right exit code and words. One or two events at any instant, to a
    rank, to horovodrun, to what is between them, or to a host. A block of as many seeds as there are kinds of
    events has each kind once.
elastic: the others should train on. Three of five workers are killed at chosen points of training: two seeds
elastic: the others should train on. Three of five workers are killed at chosen points of training; two seeds
    together have each point once, and each rank.
soak: one long elastic job, whose workers and hosts are struck. Its events are drawn while it runs (`Course`),
    because the possible targets depend on what has happened.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from horovod.common import time_limits

Some = TypeVar("Some")

# ---- fixed ----
# Actions of a rank against itself. The first group can happen at any instant, by a thread of the rank. The
# second group are actions of a script, which happen between two of its statements.
AT_ANY_INSTANT = ("killed", "segfault", "stopped", "os_exit", "os_exit_0")
BY_THE_SCRIPT = ("sys_exit", "sys_exit_0", "exception", "rank_disk_full", "rank_pipe_closed")
OF_A_RANK = (*AT_ANY_INSTANT, *BY_THE_SCRIPT)
# Events of horovodrun: a signal, or its output goes nowhere.
TO_THE_LAUNCHER = ("launcher_term", "launcher_int", "launcher_killed")
TO_A_DISK = ("stdout_disk_full", "files_disk_full")
TO_ITS_OUTPUT = ("reader_gone", *TO_A_DISK)
BETWEEN = ("wrapper_killed", "agent_killed")
BETWEEN_HOSTS = ("ssh_killed", "far_agent_killed")
TO_A_HOST = ("host_cut", "host_killed", "host_unlinked")
KINDS = (*OF_A_RANK, *TO_THE_LAUNCHER, *TO_ITS_OUTPUT, *BETWEEN, *BETWEEN_HOSTS, *TO_A_HOST)
LOSES_A_HOST = (*BETWEEN_HOSTS, *TO_A_HOST)
# No connection is closed, so others notice these only after a while.
SILENT = ("host_cut", "host_unlinked")
# Kinds that a second event may follow: the visible order of others depends on when a process writes or reads.
FOLLOWED = (*OF_A_RANK, "wrapper_killed", *TO_A_HOST)
LARGE = 4_000_000  # elements: an allreduce of some 100 ms, during which an event can happen
STALL_WARNING, STALL_SHUTDOWN = 2.0, 4.0  # seconds; a healthy rank on a busy machine must not seem to stall
HOST_SILENCE = time_limits.HOST_SILENCE  # seconds after which horovodrun gives up a host
PATIENCE = 30.0  # seconds beyond the limit of the event
# Seconds between two events. Most jobs have ended half a second after the first; others learn of a script's
# own end later.
SHORTEST_GAP, SHORTEST_AFTER_SCRIPT = 0.15, 2.5

# ---- elastic ----
WORKERS, DEATHS = 5, 3
POINTS = ("negotiation", "bulk", "step", "commit", "idle", "reset")
COMMIT_EVERY = 3  # steps, as in survival/worker.py

# ---- soak ----
SILENCE = 5  # seconds after which a silent or stopped worker is lost
FAVOURED = 40  # events for which a worker is the favourite, which no event strikes
PATIENT = 0.5  # share of events that wait until workers have met; others may happen as ranks meet
WEIGHTS = {"kill": 5, "add": 6, "remove": 3, "stop": 1, "pause": 2, "cut": 2, "unlink": 2}


@dataclass(frozen=True)
class Moment:
    """The time of an event.

    phase: of a fixed job, "starting": `seconds` after the rank's program began, before or in init();
    "training": after init(); "step": before the allreduce number `step`; "inside": `seconds` after that was
    submitted. Of an elastic job, one of POINTS in that step, or for a reset from that step on.
    """

    phase: str
    seconds: float = 0.0
    step: int = 0


@dataclass(frozen=True)
class Event:
    """An event. rank: the target's (first) rank, or -1. code: the exit code, if it has one.

    gap: of a second event of a fixed job, seconds after the first; it has no moment.
    """

    kind: str
    rank: int = -1
    code: int = 0
    moment: Moment = Moment("training")
    gap: float = 0.0


@dataclass(frozen=True)
class Program:
    """A job and its events. hosts: number of ranks on each host.

    Of fixed jobs, sizes: elements of the allreduces, repeated; full_after: KiB that the disk has room for, if
    it is to be full. Of elastic jobs, way: how gradients are reduced, see failing_worker; resume: the state
    that another job kept, to continue from undisturbed; is_traced: it has a timeline. Of a soak, length:
    number of its events; seconds: between them on average.
    """

    kind: str
    seed: int
    hosts: tuple[int, ...]
    events: tuple[Event, ...] = ()
    sizes: tuple[int, ...] = ()
    codec: str = ""
    checkpoint_every: int = 0
    burst_every: int = 0
    full_after: int = 0
    epochs: int = 2
    way: str = ""
    resume: str = ""
    is_traced: bool = False
    length: int = 0
    seconds: float = 0.0

    @property
    def ranks(self) -> int:
        return sum(self.hosts)

    @property
    def first(self) -> str:
        """Return the kind of the first event; "" before it is known."""
        return self.events[0].kind if self.events else ""

    def host_of(self, rank: int) -> int:
        """Return a rank's host; 0 is the launcher's."""
        return int(rank >= self.hosts[0])

    def ranks_of_last_host(self) -> tuple[int, ...]:
        """Return the ranks of the target of events TO_A_HOST: never the launcher's own host."""
        return tuple(range(self.ranks - self.hosts[-1], self.ranks))

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


def fixed_program(seed: int) -> Program:
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
    first = Event(
        kind,
        draw.randrange(ranks) if kind in (*OF_A_RANK, "wrapper_killed") else -1,
        _code(draw, kind),
        _moment(draw, kind, large, len(sizes)),
    )
    events = [first]
    if kind in FOLLOWED and draw.random() < 0.4 and (second := _second(draw, first, hosts)):
        events.append(second)
    return Program(
        "fixed",
        seed,
        hosts,
        tuple(events),
        sizes=tuple(sizes),
        codec=draw.choice(("", "bit8/128")),
        checkpoint_every=draw.choice((0, 0, 7)),
        burst_every=1 if kind in TO_ITS_OUTPUT else draw.choice((0, 0, 5)),
        full_after=draw.randint(40, 400),
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
    """Draw an exit code; codes of signals, and of commands that shells do not find, are excluded."""
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


def _second(draw: random.Random, first: Event, hosts: tuple[int, ...]) -> Event | None:
    """Draw an event on a rank that the first does not affect; None if there is no such rank."""
    lost = range(sum(hosts) - hosts[-1], sum(hosts)) if first.kind in TO_A_HOST else (first.rank,)
    others = [rank for rank in range(sum(hosts)) if rank not in lost]
    kind = draw.choice(AT_ANY_INSTANT)
    shortest = SHORTEST_AFTER_SCRIPT if first.kind in BY_THE_SCRIPT else SHORTEST_GAP
    gap = shortest + draw.choice((draw.uniform(0.0, 0.3), draw.uniform(0.0, 2.5)))
    return Event(kind, draw.choice(others), _code(draw, kind), gap=gap) if others else None


def limit_of(kind: str) -> float:
    """Return the seconds in which the event may remain unnoticed."""
    if kind == "stopped":
        return STALL_SHUTDOWN
    return HOST_SILENCE if kind in LOSES_A_HOST else 0.0


def elastic_program(seed: int) -> Program:
    """Draw a program. A worker that dies in a reset dies in the reset that the previous death caused."""
    pair, half = divmod(seed, 2)
    draw = random.Random(f"deaths {pair}")
    points, ranks = draw.sample(POINTS, len(POINTS)), draw.sample(range(WORKERS), WORKERS)
    ranks.append(draw.choice(ranks[:DEATHS]))  # the second half has all ranks that the first half leaves
    points, ranks = points[half * DEATHS :][:DEATHS], ranks[half * DEATHS :][:DEATHS]
    if points[0] == "reset":
        points.reverse()
    step, events = draw.randint(-2, 1), []
    for rank, point in zip(ranks, points, strict=True):
        if point == "reset":
            moment = Moment(point, step=step - COMMIT_EVERY)  # others go back that far, and no further
        else:
            step += draw.randint(6, 8)  # more than a reset goes back
            if point == "commit":
                step += -step % COMMIT_EVERY
            moment = Moment(point, step=step)
        events.append(Event("killed", rank, moment=moment))
    return Program("elastic", seed, (1,) * WORKERS, tuple(events), is_traced=bool(half))


def soak_program(seed: int, length: int, seconds: float) -> Program:
    return Program("soak", seed, (1, 1), length=length, seconds=seconds)


class Course:
    """The events of a soak, drawn one by one."""

    def __init__(self, program: Program) -> None:
        self._chance = random.Random(program.seed)
        self._mean = program.seconds / program.length

    def pause(self) -> float:
        return min(self._chance.expovariate(1 / self._mean), 3 * self._mean)

    def is_patient(self) -> bool:
        return self._chance.random() < PATIENT

    def one_of(self, some: Sequence[Some]) -> Some:
        return self._chance.choice(some)

    def seconds(self, low: float, high: float) -> float:
        return self._chance.uniform(low, high)

    def event(self, targets: Mapping[str, Sequence[Some]]) -> tuple[str, Some]:
        """Return a possible kind and its target. targets: by kind."""
        possible = [kind for kind in targets if targets[kind]]
        kind = self._chance.choices(possible, [WEIGHTS[kind] for kind in possible])[0]
        return kind, self.one_of(targets[kind])
