"""What the membership machine tells its host to do, and what a worker is told of its membership."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "Action",
    "EndJob",
    "Leave",
    "Membership",
    "Notify",
    "Publish",
    "Say",
    "Start",
    "Stop",
]


@dataclass(frozen=True)
class Membership:
    """A worker's place in one generation. `hosts`: the name of each rank's host, in order of ranks.

    Its cross ranks are the workers of its local rank, one of each host that has as many.
    """

    generation: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    hosts: tuple[str, ...]


@dataclass(frozen=True)
class Start:
    """Start a worker. `expected`: its place if all come; what its environment says at its start.

    `local_rank` is that of its start, lower than the host's slots and no other live worker's there.
    """

    worker: int
    host: str
    local_rank: int
    rank: int
    expected: Membership


@dataclass(frozen=True)
class Stop:
    """End a worker: SIGTERM, a grace, SIGKILL. That it has ended is to be told (`worker_ended`)."""

    worker: int
    why: str


@dataclass(frozen=True)
class Publish:
    """Answer these workers, all of which ask: each has its place. `out`: who has none, and why."""

    generation: int
    memberships: Mapping[int, Membership]
    why: str
    out: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Leave:
    """Answer one worker that asks: it is out, for `reason`."""

    worker: int
    reason: str


@dataclass(frozen=True)
class Notify:
    """Tell these workers that hosts have changed. `update`: 1 added, 2 removed, 3 both."""

    workers: tuple[int, ...]
    timestamp: float
    update: int


@dataclass(frozen=True)
class EndJob:
    """End all that runs; the last action. `code`: horovodrun's. `message`: why, "" for success."""

    code: int
    message: str


@dataclass(frozen=True)
class Say:
    """A sentence for the log."""

    text: str


Action: TypeAlias = Start | Stop | Publish | Leave | Notify | EndJob | Say
