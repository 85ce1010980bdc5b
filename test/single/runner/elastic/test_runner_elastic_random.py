"""Random events for the membership machine: every action keeps the invariants, and no job hangs.

A seed is a job: it determines limits, hosts and all events. HOROVOD_TEST_CASES is the number of seeds.
"""

from __future__ import annotations

import os
import random

import pytest
from membership_model import HOSTS, MOST_SLOTS, Model

from horovod.runner.agents.outcome import End
from horovod.runner.elastic.settings import HOST, SLOT, Limits

SEEDS = int(os.environ.get("HOROVOD_TEST_CASES", "120"))
STEPS = 40
# Simulated time in which the machine must come to rest: longer than all its waits in a row.
REST = 4000
ENDS = (End(), End(1), End(signal_number=9), End(127, reason="no such file"), End(3, told=True))


class World:
    """The events of one job."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)  # of the machine's cool-downs
        self.draw = draw = random.Random(seed)
        np, most = draw.randint(1, 4), draw.choice([None, 0, 1, 3])
        limits = Limits(
            np=np,
            min_np=max(1, np - draw.randint(0, 3)),
            max_np=None if most is None else np + most,
            reset_limit=draw.choice([None, None, *range(5)]),
            cooldown_range=draw.choice([None, (1, 10), (30, 3600)]),
            blacklist=draw.choice([SLOT, SLOT, HOST]),
            max_worker_failures=draw.choice([1, 2, 3, 10]),
            hosts_may_come=draw.random() < 0.7,
            elastic_timeout=draw.choice([30.0, 600.0]),
        )
        failed = [host for host in HOSTS if draw.random() < 0.1]
        self.model = Model(limits, self.hosts(), failed)

    def hosts(self) -> dict[str, int]:
        names = self.draw.sample(HOSTS, self.draw.randint(0, 4))
        return {name: self.draw.randint(1, MOST_SLOTS) for name in names}

    def worker(self) -> int | None:
        return self.draw.choice(sorted(self.model.host)) if self.model.host else None

    def step(self) -> None:
        weights = {self.time: 6, self.asks: 8, self.ask_all: 4, self.ends: 3, self.freezes: 1}
        weights |= {self.accuses: 3, self.hosts_change: 2, self.host_is_lost: 1, self.starts: 2}
        self.draw.choices(list(weights), list(weights.values()))[0]()

    def time(self) -> None:
        self.model.advance(self.draw.choice([0.25, 1, 3, 12, 40, 700]))

    def starts(self) -> None:
        worker = self.draw.choice([self.worker(), 999])
        if worker is not None:
            self.model.take(self.model.machine.worker_started(worker))

    def asks(self) -> None:
        """A worker asks, sometimes repeatedly while it waits."""
        worker, may_again = self.worker(), self.draw.random() < 0.2
        if worker in (None, *self.model.frozen) or (worker in self.model.asks and not may_again):
            return
        self.model.ask(worker)

    def ask_all(self) -> None:
        model = self.model
        for worker in sorted(set(model.host) - model.frozen):
            if model.end is None and worker in model.host and worker not in model.asks:
                model.ask(worker)

    def ends(self) -> None:
        worker, end = self.worker(), self.draw.choice(ENDS)
        if self.draw.random() < 0.07:
            end = End(3, raised=True)
        if worker is not None and not (worker in self.model.asks and end.is_success()):
            self.model.finish(worker, end)

    def freezes(self) -> None:
        if (worker := self.worker()) is not None:
            self.model.frozen.add(worker)

    def accuses(self) -> None:
        """A member accuses one or several others; some accusations have no effect."""
        for _ in range(self.draw.randint(1, 3)):
            workers = [*self.model.host, 999]
            if self.model.end is None:
                self.model.accuse(self.draw.choice(workers), self.draw.choice(workers))

    def hosts_change(self) -> None:
        self.model.find(self.hosts())

    def host_is_lost(self) -> None:
        self.model.lose_host(self.draw.choice(HOSTS))

    # From here on all workers behave correctly: the job runs, without waiting in vain, or ends.

    def settle(self) -> None:
        model = self.model
        until = model.now + REST
        while model.now < until and model.end is None and not self.is_at_rest():
            for worker in sorted(model.host):
                if model.end is None and worker in model.host:
                    self.behave(worker)
            model.advance(1 if model.now < until - REST + 60 else 10)
        if model.end is not None:
            return self.check_nothing_follows()
        kept = [worker for worker in model.kept() if worker in model.place]
        assert kept, "nobody runs, and the job does not end"
        assert not set(model.asks) & set(kept), "members wait for ever"
        assert not model.stopped & set(model.host), "who was stopped has ended"

    def is_at_rest(self) -> bool:
        """Whether all running workers are connected members that only train."""
        model = self.model
        # Hung before hvd.init(); a stopped worker still needs a moment to end.
        hung = {worker for worker in model.frozen if worker not in model.place} - model.stopped
        running = set(model.host) - hung
        is_whole = bool(running) and running == set(model.members) - set(model.out)
        return is_whole and not (model.asks or model.notified or model.frozen - hung)

    def behave(self, worker: int) -> None:
        """One second of a worker: newcomers, members of a broken world, and excluded workers ask."""
        model = self.model
        if worker in model.stopped:
            model.finish(worker, End(signal_number=9))
        elif worker in model.frozen:
            self.miss(worker)
        elif worker in model.told:
            model.finish(worker, End())
        elif worker not in model.asks:
            missing = set(model.members) - set(model.host) | model.frozen | set(model.asks)
            is_broken = not missing.isdisjoint(model.members)
            if worker not in model.place or is_broken or model.notified or worker in model.out:
                model.ask(worker)

    def miss(self, worker: int) -> None:
        """A member accuses a hanging worker; without any other member the worker continues."""
        model = self.model
        by = next((w for w in model.members if w in model.host and w not in model.frozen), None)
        if by is None:
            model.frozen.remove(worker)
        elif worker in model.members:
            model.accuse(by, worker)

    def check_nothing_follows(self) -> None:
        machine = self.model.machine
        late = [machine.tick(), machine.hosts_found({"a": 1}), machine.host_lost("a", "late")]
        for worker in self.model.host:
            late += [machine.worker_asks(worker, 0), machine.worker_ended(worker, End(1))]
            late += [machine.worker_started(worker), machine.accuse(worker, worker + 1, "late")]
        assert not any(late)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_job_to_which_anything_happens(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        if world.model.end is None:
            world.step()
    world.settle()
