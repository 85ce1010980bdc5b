"""The running workers of an elastic job: their state, the choice of the next membership, and their places."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from horovod.common import time_limits
from horovod.common.agent_messages import Place
from horovod.runner.agents.places import numbered

MOST_ACCUSED = 3  # generations in a row after which a worker that always asks and is always accused is out


@dataclass
class Worker:
    """A process from its start to its end: a *newcomer* before its first membership, then a *member*."""

    number: int
    host: str
    # Of its start; from its first membership on, its local rank there: the GPU that the process holds, which
    # no other member of this host has.
    slot: int
    has_started: bool = False
    generation: int = 0  # of its last membership; 0 for a newcomer
    rank: int = -1  # in that membership; -1 for a newcomer
    # When it began to wait for its next membership; None while it does not wait.
    asks_since: float | None = None
    out: str = ""  # why it will be in no further membership; "" if it may be
    leave_by: float | None = None  # when it is stopped if it still runs
    is_told: bool = False  # it got the answer that it is out
    is_stopped: bool = False
    accused_since: float | None = None
    accusation: str = ""
    accusers: set[int] = field(default_factory=set)  # members of its generation that get no answers from it
    accused_in_a_row: int = 0  # earlier generations in a row in which it was accused

    def asks(self) -> bool:
        return self.asks_since is not None

    def is_silent(self, now: float, grace: float) -> bool:
        """Whether it has been accused for `grace` seconds, and neither asks nor is out."""
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
    """The running workers, from Start to their end, by number."""

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
        """Return the workers that are not out: members by rank, then newcomers by start."""
        return sorted(
            (worker for worker in self if not worker.out),
            key=lambda worker: (not worker.generation, worker.rank, worker.number),
        )

    def members(self) -> list[Worker]:
        return [worker for worker in self.kept() if worker.generation]

    def eligible(self, slots: Mapping[str, int], most: int | None) -> list[Worker]:
        """Return the candidates for the next membership by their new ranks: members first, in their old
        order.

        `slots`: of each host, the oldest host first, which orders newcomers. Each host contributes as many
        workers as it has slots, and the first `most` of all are taken.
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
        """Return the lowest of the `usable` slots for a new worker; None if there is none, or if the host
        runs `slots` workers.

        A worker that is out holds its slot, and its GPU, until it has ended.
        """
        here = self.on_host(host)
        if len(here) >= slots:
            return None
        return min(set(usable) - {worker.slot for worker in here}, default=None)


def is_complete(eligible: Sequence[Worker], generation: int, needed: int, is_late: bool, now: float) -> bool:
    """Whether the asking workers of `eligible` must become the membership after `generation` now.

    `needed`: minimum number of workers. `is_late`: the time is over, so any allowed membership is published.
    The first generation waits for all started workers. Later, survivors wait for each other, and for
    newcomers only if they are too few.
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
    return len(survivors) >= needed or have_newcomers_come(eligible, now)


def lacks_state(workers: Sequence[Worker], generation: int) -> bool:
    """Whether these workers, after this generation, would have no state to continue training from."""
    return bool(generation) and not any(worker.generation for worker in workers)


def waited(asking: Sequence[Worker], now: float) -> float:
    """Return the seconds since the first of these asked; 0 if none asks."""
    return now - min((worker.asks_since for worker in asking if worker.asks_since is not None), default=now)


def have_newcomers_come(eligible: Sequence[Worker], now: float) -> bool:
    """Whether newcomers ask: all that run, or one that has waited long enough for the others."""
    newcomers = [worker for worker in eligible if not worker.generation]
    asking = [worker for worker in newcomers if worker.asks()]
    if not asking:
        return False
    return len(asking) == len(newcomers) or waited(asking, now) >= time_limits.NEWCOMER_WINDOW


def never_heard(ready: Sequence[Worker]) -> Worker | None:
    """Return the worker to drop among workers that always ask and are always accused by others of them.

    It is the most accused one, of the highest rank; None if there is none.
    """
    numbers = {worker.number for worker in ready}
    accusers = {worker.number: len(worker.accusers & numbers) for worker in ready}
    accused = [w for w in ready if accusers[w.number] and w.accused_in_a_row + 1 >= MOST_ACCUSED]
    return max(accused, key=lambda w: (accusers[w.number], w.rank), default=None)


def memberships(generation: int, workers: Sequence[Worker]) -> Mapping[int, Place]:
    """Return worker -> place; ranks are positions in `workers`.

    Cross ranks count hosts in order of their first rank.
    """
    hosts = [worker.host for worker in workers]
    found: dict[int, int] = {}
    for host in set(hosts):
        found |= _local_ranks([worker for worker in workers if worker.host == host])
    local_ranks = [found[worker.number] for worker in workers]
    places = numbered(hosts, local_ranks, generation, order=lambda rank: hosts.index(hosts[rank]))
    return {worker.number: place for worker, place in zip(workers, places, strict=True)}


def _local_ranks(on_host: Sequence[Worker]) -> dict[int, int]:
    """Return worker -> local rank, for the workers of one host.

    A script takes the GPU of its first local rank, and keeps it. So a member's local rank is its slot if that
    is low enough: numbers left to newcomers are then no member's GPU.
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
