"""What is done about a job: decided by a machine without I/O, and carried out by the driver (`agents`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from horovod.common.agent_messages import Place


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
