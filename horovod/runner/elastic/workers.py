"""What the membership machine knows of each worker that runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from horovod.runner.elastic.actions import Place
from horovod.runner.elastic.placement import Seat

__all__ = ["Worker", "Workers"]


@dataclass
class Worker:
    """A process from its start to its end.

    `slot`: of its start, and from its first membership on its local rank there: so it is the GPU that the
    process has taken, and no other member's on this host.
    `generation`, `rank`: of its last membership; 0 and -1 before it has one (it is a *newcomer* then, and a
    *member* later). `asks_since`: when it began to wait for its next membership; None while it does not.
    `out`: why it will be in none any more; "" while it may. `is_told`: it was answered so. `leave_by`: when
    it is stopped if it still runs.
    `accusers`: members of its generation that do not hear it.
    """

    number: int
    host: str
    slot: int
    has_started: bool = False
    generation: int = 0
    rank: int = -1
    asks_since: float | None = None
    out: str = ""
    leave_by: float | None = None
    is_told: bool = False
    is_stopped: bool = False
    accused_since: float | None = None
    accusation: str = ""
    accusers: set[int] = field(default_factory=set)
    accused_in_a_row: int = 0  # generations before this one that ended by an accusation of it

    def asks(self) -> bool:
        return self.asks_since is not None

    def is_silent(self, now: float, grace: float) -> bool:
        """Whether it has been accused for so long, and neither asks nor is out."""
        is_awaited = not self.out and not self.asks()
        return is_awaited and self.accused_since is not None and now - self.accused_since >= grace

    def enter(self, place: Place) -> None:
        """It has its place in a new generation."""
        if not self.generation:
            self.slot = place.local_rank
        self.accused_in_a_row = self.accused_in_a_row + 1 if self.accusers else 0
        self.accused_since, self.accusation = None, ""
        self.accusers.clear()
        self.generation, self.rank, self.asks_since = place.generation, place.rank, None

    def seat(self) -> Seat:
        return Seat(self.number, self.host, self.slot, is_new=not self.generation)

    def __str__(self) -> str:
        if self.generation:
            return f"rank {self.rank} on host {self.host}"
        state = "not in the job yet" if self.has_started else "not started yet"
        return f"worker {self.number} on host {self.host} ({state})"


class Workers:
    """Those that run: from Start until they have ended. By number."""

    def __init__(self) -> None:
        self._running: dict[int, Worker] = {}
        self._next = 0

    def add(self, host: str, slot: int) -> Worker:
        worker = Worker(self._next, host, slot)
        self._next += 1
        self._running[worker.number] = worker
        return worker

    def get(self, number: int) -> Worker | None:
        return self._running.get(number)

    def remove(self, worker: Worker) -> None:
        del self._running[worker.number]

    def __iter__(self) -> Iterator[Worker]:
        return iter(list(self._running.values()))

    def on_host(self, host: str) -> list[Worker]:
        return [worker for worker in self if worker.host == host]

    def kept(self) -> list[Worker]:
        """Those that are not out: members in order of ranks, then newcomers in order of their start."""
        return sorted(
            (worker for worker in self if not worker.out),
            key=lambda worker: (not worker.generation, worker.rank, worker.number),
        )

    def members(self) -> list[Worker]:
        return [worker for worker in self.kept() if worker.generation]

    def eligible(self, slots: Mapping[str, int], most: int | None) -> list[Worker]:
        """Who may be in the next membership, in order of its ranks: members first, and in their order.

        `slots`: those of each host, the oldest host first; newcomers are ordered by them. Of a host that has
        more workers than slots the first are taken, and of all of them the first `most`.
        """
        left = dict(slots)
        found = []
        ages = {host: age for age, host in enumerate(slots)}
        for worker in self.kept():
            if left.get(worker.host, 0) > 0:
                left[worker.host] -= 1
                found.append(worker)
        found.sort(
            key=lambda worker: (
                (0, worker.rank, 0) if worker.generation else (1, ages[worker.host], worker.slot)
            )
        )
        return found[:most]

    def free_slot(self, host: str, slots: int, usable: Collection[int]) -> int | None:
        """The lowest of the `usable` slots that a new worker can have; None where there is none, or as many
        workers run as the host has `slots`.

        Who is out takes its slot, and its GPU, until it has ended.
        """
        here = self.on_host(host)
        if len(here) >= slots:
            return None
        return min(set(usable) - {worker.slot for worker in here}, default=None)
