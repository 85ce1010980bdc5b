"""The decisions of a job whose ranks are known when it starts: a worker is a rank, and all end together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from horovod.runner.agents.outcome import End
from horovod.runner.agents.places import places_of
from horovod.runner.elastic.actions import Action, EndJob, Publish, Say, Start, Stop

__all__ = ["FixedJob"]


class FixedJob:
    """`hosts`: names and slots, in the order in which ranks fill them.

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

    def worker_started(self, worker: int) -> list[Action]:
        return []

    def worker_asks(self, worker: int, after: int) -> list[Action]:
        """Whatever it had before: there is one generation."""
        return [Publish(1, {worker: self._places[worker]})]

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        """Who is to blame is found when they have ended."""
        return []

    def worker_leaves(self, worker: int, why: str, commits: int, is_lost: bool) -> list[Action]:
        """Nothing is started again: its end is what counts."""
        return []

    def worker_raised(self, worker: int) -> list[Action]:
        return []

    def worker_ended(self, worker: int, end: End) -> list[Action]:
        if self._running.pop(worker, None) is None:
            return []
        return self._after(end.exit_code(), is_reported=end.signal_number == 0)

    def host_lost(self, host: str, reason: str) -> list[Action]:
        here = [rank for rank, place in self._running.items() if place.hosts[rank] == host]
        for rank in here:
            del self._running[rank]
        return [Say(f"{host}: {reason}"), *self._after(1, is_reported=False)] if here else []

    def hosts_found(self, hosts: Mapping[str, int]) -> list[Action]:
        """They are what they were."""
        return []

    def tick(self) -> list[Action]:
        return []

    def _after(self, code: int, is_reported: bool) -> list[Action]:
        self._code = self._code or code
        if not self._running:
            return [EndJob(self._code)]
        return [] if is_reported else [Stop(rank) for rank in self._running]
