"""The running workers of an elastic job: their state, the choice of the next membership, and their places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from horovod.common.agent_messages import Place
from horovod.runner.elastic.settings import Limits

MOST_ACCUSED = 3  # generations in a row: whoever asks each time, and is never heard, is out then


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
        if not self.generation:
            self.slot = place.local_rank
        self.accused_in_a_row = self.accused_in_a_row + 1 if self.accusers else 0
        self.accused_since, self.accusation = None, ""
        self.accusers.clear()
        self.generation, self.rank, self.asks_since = place.generation, place.rank, None

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
        """Candidates for the next membership, in order of its ranks: members first, and in their order.

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


def is_complete(
    eligible: Sequence[Worker], generation: int, needed: int, is_late: bool, limits: Limits, now: float
) -> bool:
    """Whether those of `eligible` that ask are to be the membership after `generation` now.

    `needed`: workers, at least. `is_late`: there is no more time, so that what can be published is. After the
    first generation survivors wait for each other, and for newcomers only where they are too few. The first
    waits for all that were started.
    """
    ready = [worker for worker in eligible if worker.asks()]
    if len(ready) < needed or lacks_state(ready, generation):
        return False
    if is_late:
        return True
    if not generation:
        return len(ready) == len(eligible)
    survivors = [worker for worker in eligible if worker.generation]
    if not all(worker.asks() for worker in survivors):
        return False
    return len(survivors) >= needed or have_newcomers_come(eligible, limits, now)


def lacks_state(workers: Sequence[Worker], generation: int) -> bool:
    """Whether a membership of these, after this generation, would not know what training goes on from."""
    return bool(generation) and not any(worker.generation for worker in workers)


def waited(asking: Sequence[Worker], now: float) -> float:
    """Seconds since the first of these asked; 0 where none asks."""
    return now - min((worker.asks_since for worker in asking if worker.asks_since is not None), default=now)


def have_newcomers_come(eligible: Sequence[Worker], limits: Limits, now: float) -> bool:
    """Whether there are newcomers that ask: all that run, or one has waited long enough for others."""
    newcomers = [worker for worker in eligible if not worker.generation]
    asking = [worker for worker in newcomers if worker.asks()]
    if not asking:
        return False
    return len(asking) == len(newcomers) or waited(asking, now) >= limits.newcomer_window


def never_heard(ready: Sequence[Worker]) -> Worker | None:
    """Of those that ask each time and are accused each time, by others of them: who is accused most, of the
    highest rank.
    """
    numbers = {worker.number for worker in ready}
    accusers = {worker.number: len(worker.accusers & numbers) for worker in ready}
    accused = [w for w in ready if accusers[w.number] and w.accused_in_a_row + 1 >= MOST_ACCUSED]
    return max(accused, key=lambda w: (accusers[w.number], w.rank), default=None)


def memberships(generation: int, workers: Sequence[Worker]) -> Mapping[int, Place]:
    """Worker -> its place; ranks are positions in `workers`.

    Cross ranks: hosts in order of their first rank.
    """
    by_host: dict[str, list[Worker]] = {}
    for worker in workers:
        by_host.setdefault(worker.host, []).append(worker)
    local_ranks: dict[int, int] = {}
    for on_host in by_host.values():
        local_ranks |= _local_ranks(on_host)
    hosts = tuple(worker.host for worker in workers)
    places = {}
    for rank, worker in enumerate(workers):
        local_rank = local_ranks[worker.number]
        across = [host for host, on_host in by_host.items() if len(on_host) > local_rank]
        places[worker.number] = Place(
            generation=generation,
            rank=rank,
            size=len(workers),
            local_rank=local_rank,
            local_size=len(by_host[worker.host]),
            cross_rank=across.index(worker.host),
            cross_size=len(across),
            hosts=hosts,
        )
    return places


def _local_ranks(on_host: Sequence[Worker]) -> dict[int, int]:
    """Worker -> its local rank, of the workers of one host.

    A script takes the GPU of its first local rank, and keeps it. So a member's local rank is its slot, as
    long as that is low enough: numbers that are left to newcomers are no member's GPU.
    """
    count = len(on_host)
    found: dict[int, Worker] = {}
    for worker in sorted(on_host, key=lambda worker: not worker.generation):
        if worker.slot < count:
            found.setdefault(worker.slot, worker)
    rest = [worker for worker in on_host if found.get(worker.slot) is not worker]
    rest.sort(key=lambda worker: worker.slot)
    free = [number for number in range(count) if number not in found]
    found |= dict(zip(free, rest, strict=True))
    return {worker.number: number for number, worker in found.items()}
