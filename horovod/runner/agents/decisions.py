"""Who decides what becomes of a job: the one seam between fixed jobs and those whose hosts come and go.

The driver tells what has happened, and carries out the actions that it gets for an answer. A *worker* is one
start of a process: a number that is never used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from horovod.common.agent_messages import Place

__all__ = ["Action", "Decisions", "EndJob", "Notify", "Publish", "Say", "Start", "Stop"]


@dataclass(frozen=True)
class Start:
    """Start a worker on a host, with its agent if there is none yet, and tell it this place."""

    worker: int
    host: str
    place: Place


@dataclass(frozen=True)
class Stop:
    """End a worker: it is told, and killed some seconds later."""

    worker: int
    why: str = ""


@dataclass(frozen=True)
class Publish:
    """Tell workers their places in a generation; and others that they are out, and why."""

    generation: int
    places: Mapping[int, Place]
    why: str = ""
    out: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Notify:
    """Tell workers that hosts have come (1) or gone (2), or both (3); `timestamp` in seconds."""

    workers: Sequence[int]
    timestamp: float
    update: int


@dataclass(frozen=True)
class EndJob:
    """End what still runs, and the job with this code."""

    code: int
    message: str = ""


@dataclass(frozen=True)
class Say:
    """A line for the user."""

    text: str


Action = Start | Stop | Publish | Notify | EndJob | Say


class Decisions(Protocol):
    """Events, each answered with what is to be done. No method does I/O, nor waits."""

    def begin(self) -> list[Action]: ...

    def worker_started(self, worker: int) -> list[Action]:
        """Its process is there."""

    def worker_asks(self, worker: int, after: int) -> list[Action]:
        """It waits for its place in a generation after this one."""

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        """A worker does not hear another rank any more."""

    def worker_ended(self, worker: int, code: int) -> list[Action]:
        """`code`: the exit code, or less than 0 for the signal that ended it."""

    def host_lost(self, host: str, reason: str) -> list[Action]:
        """Its agent is gone, and all workers there."""

    def tick(self) -> list[Action]:
        """Some tenths of a second have passed."""
