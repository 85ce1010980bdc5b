"""The decisions of a job whose hosts and workers come and go: those of `elastic.membership`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from horovod.runner.agents.outcome import End
from horovod.runner.elastic.actions import Action
from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.membership import MembershipMachine

__all__ = ["ElasticJob"]


class ElasticJob:
    """`hosts`: names and slots at the beginning, the first of which has rank 0; `clock`: seconds; `failed`:
    hosts that are on the blacklist from the beginning.
    """

    def __init__(
        self,
        limits: Limits,
        hosts: Mapping[str, int],
        clock: Callable[[], float],
        failed: Collection[str] = (),
    ) -> None:
        self._machine = MembershipMachine(limits, hosts, clock, failed)

    def begin(self) -> list[Action]:
        return self._machine.tick()

    def worker_started(self, worker: int) -> list[Action]:
        return self._machine.worker_started(worker)

    def worker_asks(self, worker: int, after: int) -> list[Action]:
        return self._machine.worker_asks(worker, after)

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        """Of a rank of the present generation: what is said of earlier ones is too late."""
        accused = self._machine.worker(generation, rank)
        return [] if accused is None else self._machine.worker_accused(by, accused, reason)

    def worker_leaves(self, worker: int, why: str, commits: int, is_lost: bool) -> list[Action]:
        """Here processes go on: its end is what counts."""
        return []

    def worker_raised(self, worker: int) -> list[Action]:
        return []

    def worker_ended(self, worker: int, end: End) -> list[Action]:
        return self._machine.worker_ended(worker, end)

    def host_lost(self, host: str, reason: str) -> list[Action]:
        return self._machine.host_lost(host, reason)

    def hosts_found(self, hosts: Mapping[str, int]) -> list[Action]:
        return self._machine.hosts_found(hosts)

    def tick(self) -> list[Action]:
        return self._machine.tick()
