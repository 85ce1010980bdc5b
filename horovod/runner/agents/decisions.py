"""The interface of decisions about a job's workers: one implementation for fixed jobs, two for elastic ones.

The driver reports events, and carries out the returned actions. A *worker* is one start of a process, with
a number that is never used again.
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
    """Start a worker on a host, and the host's agent if it does not run."""

    worker: int
    host: str
    place: Place  # the worker's place if all workers join, also in its environment
    slot: int = 0  # below the host's slots, and unlike that of any other live worker there


@dataclass(frozen=True)
class Stop:
    """End a worker: SIGTERM, a grace period, SIGKILL. `worker_ended` must follow."""

    worker: int
    why: str = ""  # a sentence for the log; "" if another action has it


@dataclass(frozen=True)
class Publish:
    """Answer these workers, all of which have asked."""

    generation: int
    places: Mapping[int, Place]
    why: str = ""  # a log sentence about this membership; "" for none
    out: Mapping[int, str] = field(default_factory=dict)  # worker -> why it gets no place


@dataclass(frozen=True)
class Leave:
    """Answer one worker that has asked: it gets no place, for `reason`."""

    worker: int
    reason: str


@dataclass(frozen=True)
class Notify:
    """Notify these workers of a change of hosts. `update`: 1 added, 2 removed, 3 both."""

    workers: Sequence[int]
    timestamp: float
    update: int


@dataclass(frozen=True)
class EndJob:
    """End all workers; the last action. `code`: horovodrun's exit code. `message`: why, "" for success."""

    code: int
    message: str = ""


@dataclass(frozen=True)
class Say:
    text: str


Action: TypeAlias = Start | Stop | Publish | Leave | Notify | EndJob | Say


class Decisions(ABC):
    """Events, each answered by actions; the default is none. No method does I/O or waits."""

    def begin(self) -> list[Action]:
        return self.tick()

    def worker_started(self, worker: int) -> list[Action]:
        return []

    @abstractmethod
    def worker_asks(self, worker: int, after: int) -> list[Action]:
        """The worker waits for its place in a generation after this one."""

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        """A worker gets no answers from another rank any more."""
        return []

    def worker_leaves(self, worker: int, why: str, commits: int, is_lost: bool) -> list[Action]:
        """The worker's process announces that it ends, to start again."""
        return []

    def worker_raised(self, worker: int) -> list[Action]:
        """The worker's process announces that it ends by an exception of the script."""
        return []

    @abstractmethod
    def worker_ended(self, worker: int, end: End) -> list[Action]:
        """The worker's process has ended. A signal in `end` ended its wrapper; the process' own signal is in
        the exit code, as in a shell.
        """

    @abstractmethod
    def host_lost(self, host: str, reason: str) -> list[Action]:
        """The host's agent and all its workers are gone."""

    def hosts_found(self, hosts: Mapping[str, int]) -> list[Action]:
        return []

    def tick(self) -> list[Action]:
        """Called several times a second."""
        return []


class FixedJob(Decisions):
    """Decisions of a job with fixed ranks: a worker is a rank, and all end together.

    `hosts`: names and slots, in the order in which ranks fill them.

    horovodrun ends the job when reports show which failed rank is to blame. If a wrapper was killed or a host
    lost, no report follows: then all ranks are ended here. A rank that ended with 0 leaves the others
    running.
    """

    def __init__(self, hosts: Sequence[tuple[str, int]]) -> None:
        self._places = places_of(hosts)
        self._running = dict(enumerate(self._places))
        self._code = 0

    def begin(self) -> list[Action]:
        return [Start(rank, place.hosts[rank], place) for rank, place in self._running.items()]

    def worker_asks(self, worker: int, after: int) -> list[Action]:
        """Answer at once, whatever the worker knew before: there is only one generation."""
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
