"""The interface that decides about a job's workers: implemented once for fixed jobs, once for elastic ones.

The driver tells what has happened, and carries out the actions that it gets for an answer. A *worker* is one
start of a process: a number that is never used again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from horovod.common.agent_messages import Place
from horovod.runner.agents.outcome import End
from horovod.runner.agents.places import places_of


@dataclass(frozen=True)
class Start:
    """Start a worker on a host (and its agent, if there is none yet).

    `place`: the one that it has if all come, which its environment tells it. `slot`: lower than the host's
    slots, and no other live worker's there.
    """

    worker: int
    host: str
    place: Place
    slot: int = 0


@dataclass(frozen=True)
class Stop:
    """End a worker: SIGTERM, a grace, SIGKILL. That it has ended is to be told (`worker_ended`).

    `why`: a sentence for the log; "" where another action says it.
    """

    worker: int
    why: str = ""


@dataclass(frozen=True)
class Publish:
    """Answer these workers, all of which ask: each has its place. `out`: who has none, and why.

    `why`: this membership in a sentence for the log; "" for none.
    """

    generation: int
    places: Mapping[int, Place]
    why: str = ""
    out: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Leave:
    """Answer one worker that asks: it is out, for `reason`."""

    worker: int
    reason: str


@dataclass(frozen=True)
class Notify:
    """Tell these workers that hosts have changed. `update`: 1 added, 2 removed, 3 both."""

    workers: Sequence[int]
    timestamp: float
    update: int


@dataclass(frozen=True)
class EndJob:
    """End all that runs; the last action. `code`: horovodrun's. `message`: why, "" for success."""

    code: int
    message: str = ""


@dataclass(frozen=True)
class Say:
    """A sentence for the log."""

    text: str


Action: TypeAlias = Start | Stop | Publish | Leave | Notify | EndJob | Say


class Decisions(ABC):
    """Events, each answered with what is to be done: nothing, where a kind of job does not heed it. No method
    does I/O, nor waits.
    """

    def begin(self) -> list[Action]:
        return self.tick()

    def worker_started(self, worker: int) -> list[Action]:
        """Its process is there."""
        return []

    @abstractmethod
    def worker_asks(self, worker: int, after: int) -> list[Action]:
        """It waits for its place in a generation after this one."""

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        """A worker does not hear another rank any more."""
        return []

    def worker_leaves(self, worker: int, why: str, commits: int, is_lost: bool) -> list[Action]:
        """Its process says that it ends, to be started again."""
        return []

    def worker_raised(self, worker: int) -> list[Action]:
        """Its process says that it ends by an exception of the script's own."""
        return []

    @abstractmethod
    def worker_ended(self, worker: int, end: End) -> list[Action]:
        """Its process is gone. A signal is one that ended its wrapper: its own is told as a shell does."""

    @abstractmethod
    def host_lost(self, host: str, reason: str) -> list[Action]:
        """Its agent is gone, and all workers there."""

    def hosts_found(self, hosts: Mapping[str, int]) -> list[Action]:
        """All hosts that there are now, and their slots."""
        return []

    def tick(self) -> list[Action]:
        """Some tenths of a second have passed."""
        return []


class FixedJob(Decisions):
    """Of a job whose ranks are known when it starts: a worker is a rank, and all end together. `hosts`: names
    and slots, in the order in which ranks fill them.

    When a rank has failed, its wrapper reports it, and horovodrun ends the job once it knows whom to blame.
    Where the wrapper itself was killed, or a host is gone, nobody would report: then all are ended from here.
    A rank that ended with 0 leaves the others alone.
    """

    def __init__(self, hosts: Sequence[tuple[str, int]]) -> None:
        self._places = places_of(hosts)
        self._running = dict(enumerate(self._places))
        self._code = 0

    def begin(self) -> list[Action]:
        return [Start(rank, place.hosts[rank], place) for rank, place in self._running.items()]

    def worker_asks(self, worker: int, after: int) -> list[Action]:
        """Whatever it had before: there is one generation."""
        return [Publish(1, {worker: self._places[worker]})]

    def worker_ended(self, worker: int, end: End) -> list[Action]:
        if self._running.pop(worker, None) is None:
            return []
        return self._after(end.exit_code(), is_reported=end.signal_number == 0)

    def host_lost(self, host: str, reason: str) -> list[Action]:
        here = [rank for rank, place in self._running.items() if place.hosts[rank] == host]
        for rank in here:
            del self._running[rank]
        return [Say(f"{host}: {reason}"), *self._after(1, is_reported=False)] if here else []

    def _after(self, code: int, is_reported: bool) -> list[Action]:
        self._code = self._code or code
        if not self._running:
            return [EndJob(self._code)]
        return [] if is_reported else [Stop(rank) for rank in self._running]
