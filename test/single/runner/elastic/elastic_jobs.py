"""Elastic jobs with a simulated clock: the membership machine, and RestartJob."""

from __future__ import annotations

from typing import Any, TypeVar

from horovod.runner.agents.decisions import Action, EndJob, Publish, Start
from horovod.runner.agents.outcome import End
from horovod.runner.elastic.membership import MembershipMachine
from horovod.runner.elastic.settings import Limits

KILLED = End(signal_number=9)
AnyAction = TypeVar("AnyAction", bound=Action)


class Decided:
    """A simulated clock, and all decisions so far."""

    def __init__(self, limits: Limits) -> None:
        self.now = 1000.0
        self.limits = limits
        self.actions: list[Action] = []

    def tick(self) -> list[Action]:
        """Make the machine check the clock."""
        raise NotImplementedError

    def take(self, actions: list[Action]) -> list[Action]:
        self.actions += actions
        return actions

    def all(self, kind: type[AnyAction]) -> list[AnyAction]:
        return [action for action in self.actions if isinstance(action, kind)]

    def last(self, kind: type[AnyAction]) -> AnyAction:
        return self.all(kind)[-1]

    def wait(self, seconds: float) -> list[Action]:
        """Time passes, in ticks of 0.1 s."""
        found: list[Action] = []
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            found += self.take(self.tick())
        return found

    def over(self) -> EndJob:
        (end,) = self.all(EndJob)
        return end


class Job(Decided):
    """The membership machine, called directly."""

    def __init__(self, hosts: dict[str, int], np: int, least: int = 1, **more: Any) -> None:
        failed = more.pop("failed", ())
        super().__init__(Limits(np=np, min_np=least, max_np=more.pop("most", None), **more))
        self.machine = MembershipMachine(self.limits, hosts, lambda: self.now, failed)
        self.take(self.tick())

    def tick(self) -> list[Action]:
        return self.machine.tick()

    def ask(self, *workers: int) -> list[Action]:
        return [
            action
            for worker in workers
            for action in self.take(self.machine.worker_asks(worker, self.generations.get(worker, 0)))
        ]

    @property
    def generations(self) -> dict[int, int]:
        return {worker: p.generation for p in self.all(Publish) for worker in p.places}

    def end(self, worker: int, end: End) -> list[Action]:
        return self.take(self.machine.worker_ended(worker, end))

    def find(self, hosts: dict[str, int]) -> list[Action]:
        return self.take(self.machine.hosts_found(hosts))

    def accuse(self, by: int, worker: int) -> list[Action]:
        return self.take(self.machine.accuse(by, worker, "silent for 3 s"))

    def started(self) -> list[tuple[int, str, int, int]]:
        return [(s.worker, s.host, s.slot, s.place.rank) for s in self.all(Start)]

    def order(self) -> list[int]:
        """Workers of the last generation, by rank."""
        places = self.last(Publish).places
        return sorted(places, key=lambda worker: places[worker].rank)


def two_hosts(**more: Any) -> Job:
    """Workers 0, 1 on a, 2, 3 on b; all in generation 1."""
    job = Job({"a": 2, "b": 2}, np=4, **{"least": 2, **more})
    job.ask(0, 1, 2, 3)
    assert job.order() == [0, 1, 2, 3]
    return job
