"""Ranks of several hosts tell each other what they have begun: who hears that all have waits for no answer.

Tensors have no elements, so that nothing but messages travels, which tests hold back and pass on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from native_testing import testing
from ranks import ends_within, submit
from refusals import refused
from tcp_worlds import tcp_settings, tcp_worlds

from horovod import _native
from horovod.common.exceptions import Disagreement, HorovodInternalError

EMPTY = np.empty(0, np.float32)


class Job:
    """Three ranks that promise one order, each on a host of its own."""

    def __init__(self, hosts: Sequence[int] = (0, 1, 2), threads: Sequence[int] = ()) -> None:
        settings = _native.Settings()
        settings.cache_capacity = 1 << 40
        self.worlds = _native.local_worlds(3, False, list(hosts))
        self.stepped = [rank for rank in range(3) if rank not in threads]
        self.engines = [
            _native.Engine(world, settings, start_thread=rank in threads, in_order=True)
            for rank, world in enumerate(self.worlds)
        ]

    def start(self, name: str, *ranks: int) -> list[int]:
        handles = [submit(self.engines[rank], name, EMPTY) for rank in ranks]
        self.step(*ranks)
        return handles

    def step(self, *ranks: int) -> None:
        for rank in ranks:
            if rank in self.stepped:
                self.engines[rank].step(50.0)

    def run(self, *names: str) -> None:
        """On all ranks, which know these from then on."""
        for name in names:
            handles = self.start(name, 0, 1, 2)
            for _ in range(5 if len(self.stepped) == 3 else 100):
                self.step(0, 1, 2)
                time.sleep(0 if len(self.stepped) == 3 else 0.001)
            for engine, handle in zip(self.engines, handles, strict=True):
                assert ends_within(engine, handle, 1)
                engine.wait(handle)

    def held_back(self) -> list[bytes]:
        """What ranks have sent rank 0, and it has not read: one message of each, in the order of sending."""
        return list(iter(lambda: testing.receive(self.worlds[0]), None))

    def early(self) -> list[int]:
        return [engine.counters()["given_out_early"] for engine in self.engines]

    def is_done(self, rank: int, handle: int) -> bool:
        return self.engines[rank].poll(handle)


@pytest.fixture
def job(request: pytest.FixtureRequest) -> Iterator[Job]:
    made = Job(**getattr(request, "param", {}))
    made.run("a", "b", "a", "b")
    yield made
    for world in made.worlds:
        world.abandon()  # nobody waits for a rank that is not stepped any more
    for engine in made.engines:
        engine.shutdown()


def test_who_hears_that_all_have_begun_waits_for_no_answer(job: Job) -> None:
    before = job.early()
    first, second = job.start("a", 1, 2)
    of_rank_1, of_rank_2 = job.held_back()
    testing.post(job.worlds[1], 0, of_rank_1)
    (coordinator,) = job.start("a", 0)
    job.step(0, 1, 2)
    assert job.is_done(1, first) and job.is_done(2, second)
    assert not job.is_done(0, coordinator)  # of rank 2 it knows nothing
    assert [after - then for after, then in zip(job.early(), before, strict=True)] == [0, 1, 1]
    testing.post(job.worlds[2], 0, of_rank_2)
    job.step(0, 1, 2)
    assert job.is_done(0, coordinator)
    job.run("a", "b", "c", "a")


def test_who_is_ahead_of_what_the_coordinator_knows_is_heard_later(job: Job) -> None:
    """Ranks 1 and 2 are in the next step, by the same names; what rank 2 has sent rank 0 is slow."""
    held = []
    coordinators = []
    for _ in range(2):
        handles = job.start("a", 1, 2)
        quick, slow = job.held_back()
        testing.post(job.worlds[1], 0, quick)
        held.append(slow)
        coordinators += [] if coordinators else job.start("a", 0)
        job.step(0, 1, 2)
    assert not job.is_done(0, coordinators[0])
    for message in held:
        testing.post(job.worlds[2], 0, message)
    job.step(0, 1, 2)
    assert job.is_done(0, coordinators[0]) and not job.is_done(1, handles[0])
    coordinators += job.start("a", 0)
    job.step(1, 2)
    assert all(job.is_done(rank, handles[rank - 1]) for rank in (1, 2)) and job.is_done(0, coordinators[1])
    job.run("b", "a", "c")


def test_what_others_have_not_begun_waits_for_the_answer(job: Job) -> None:
    """Rank 2 asks for it before it has an answer to what was before, so it begins nothing; and later does."""
    new = job.start("new", 0, 1, 2)
    (not_begun,) = job.start("a", 2)
    job.step(0, 1)
    assert job.is_done(1, new[1])
    before = job.early()
    (begun,) = job.start("a", 1)
    (of_rank_1,) = job.held_back()  # rank 0 knows of rank 2's
    job.start("a", 0)
    job.step(1)
    assert not job.is_done(1, begun) and job.early() == before
    testing.post(job.worlds[1], 0, of_rank_1)
    for _ in range(3):
        job.step(0, 1, 2)
    assert job.is_done(1, begun) and job.is_done(2, not_begun)
    job.run("a")
    assert job.early()[1] == before[1] + 1


def test_what_differs_is_given_out_to_nobody(job: Job) -> None:
    before = job.early()
    handles = [*job.start("a", 1, 2), *job.start("b", 0)]
    job.step(1, 2)
    assert job.early() == before
    for rank, handle in zip((1, 2, 0), handles, strict=True):
        job.step(0, 1, 2)
        with refused(Disagreement, "orders_differ") as caught:
            job.engines[rank].wait(handle)
        assert caught.value.values.items() >= {0: "'b'", 1: "'a'"}.items()


@pytest.mark.parametrize("job", [{"threads": [1]}], indirect=True)
def test_who_is_ahead_leaves_when_it_is_answered(job: Job) -> None:
    """Else the coordinator would take it for one that leaves others in what they have begun."""
    (mine,) = job.start("a", 1)
    messages: list[bytes] = []
    while not messages:
        messages = job.held_back()
    (other,) = job.start("a", 2)
    messages += job.held_back()
    testing.post(job.worlds[1], 0, messages[0])
    (coordinator,) = job.start("a", 0)
    assert ends_within(job.engines[1], mine)
    leaving = threading.Thread(target=job.engines[1].shutdown)
    leaving.start()
    leaving.join(0.3)
    assert leaving.is_alive() and job.held_back() == []
    testing.post(job.worlds[2], 0, messages[1])
    for _ in range(3):
        job.step(0, 2)
    assert job.is_done(0, coordinator) and job.is_done(2, other)
    job.engines[0].wait(coordinator)
    job.engines[2].wait(other)
    leaving.join(1)
    job.step(0, 2)
    leaving.join(10)
    assert not leaving.is_alive()


@pytest.mark.parametrize("job", [{"hosts": [0, 0, 0]}], indirect=True)
def test_ranks_of_one_host_wait_for_the_answer(job: Job) -> None:
    """It is there at once, and costs less than what each would tell every other."""
    job.run("a")
    assert job.early() == [0, 0, 0]
    told = b"anything"
    testing.post(job.worlds[1], 2, told)
    with refused(HorovodInternalError, ranks=(1,)):
        job.step(2)


def test_over_tcp() -> None:
    worlds = tcp_worlds(2)
    engines: Any = [
        _native.Engine(world, tcp_settings(cache_capacity=1 << 40), in_order=True) for world in worlds
    ]
    arrays = [np.zeros(1000, np.float32) for _ in engines]
    for step in range(1, 101):
        for array in arrays:
            array[:] = step
        handles = [submit(engine, "a", array) for engine, array in zip(engines, arrays, strict=True)]
        for engine, handle in zip(engines, handles, strict=True):
            engine.wait(handle)
        assert all(np.all(array == 2 * step) for array in arrays)
    assert engines[0].counters()["given_out_early"] == 0
    assert engines[1].counters()["given_out_early"] > 50
    threads = [threading.Thread(target=engine.shutdown) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
