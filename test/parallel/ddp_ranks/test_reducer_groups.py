"""Several GroupReducers in one process, over all ranks and over some of them."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest
import torch
import torch.distributed as dist
from reducer_cases import assert_same_bits, buckets, engines_make, named, reduced

from horovod.torch.ddp.reducer import Gradient, GroupReducer
from horovod.torch.ddp.scheduling import behind_training
from horovod.torch.reduce_ops import Average


def couriers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "horovod-ddp-courier"}


def test_two_reducers_may_be_used_in_turns(rank: int, size: int) -> None:
    """As the two models of a GAN are: from two threads too, and each has its own order."""
    first, second = GroupReducer(), GroupReducer(algorithm="scatter")
    steps = [buckets(size, step=step) for step in range(6)]
    wanted = {
        "auto": engines_make(steps, named("bit8"), Average, "auto"),
        "scatter": engines_make(steps, named("bit8"), Average, "scatter"),
    }
    got: dict[str, list[list[torch.Tensor]]] = {"auto": [], "scatter": []}

    def train(reducer: GroupReducer, algorithm: str) -> None:
        for step, ranks in enumerate(steps):
            time.sleep(0.003 * ((rank + step) % 3))
            got[algorithm].append(reduced(reducer, ranks[rank], named("bit8")))

    other = threading.Thread(target=train, args=(second, "scatter"))
    other.start()
    train(first, "auto")
    other.join()
    for algorithm in got:
        for step in range(6):
            assert_same_bits(got[algorithm][step], wanted[algorithm][step], f"{algorithm}, step {step}")
    second.close()
    first.close()


def test_some_ranks_have_reducers_of_their_own(rank: int, size: int) -> None:
    """Halves of the job, made at other times and in other numbers; then all ranks again."""
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    groups = [dist.new_group(half) if half else None for half in halves]
    mine = int(rank >= size // 2)
    members = halves[mine]
    for _ in range(1 + mine):
        reducer = GroupReducer(groups[mine])
        assert (reducer.rank, reducer.size) == (members.index(rank), len(members))
        ranks = buckets(size)
        own = [ranks[member] for member in members]
        wanted = engines_make([own], named("int8"), Average, "auto")[0]
        assert_same_bits(reduced(reducer, ranks[rank], named("int8")), wanted)
        reducer.close()
    everybody = GroupReducer()
    wanted = engines_make([buckets(size)], named("int8"), Average, "auto")[0]
    assert_same_bits(reduced(everybody, buckets(size)[rank], named("int8")), wanted)
    everybody.close()
    for group in groups:
        if group is not None and rank in dist.get_process_group_ranks(group):
            dist.destroy_process_group(group)


def test_a_reducer_that_is_forgotten_ends_its_thread(rank: int, size: int) -> None:
    before = couriers()
    reducer = GroupReducer()
    x = torch.full((50, 60), float(rank))
    future = reducer.start([Gradient("x", x, named("bit8"))])
    own = couriers() - before
    assert len(own) == (size > 1)
    del reducer
    future.wait()
    gc.collect()
    for thread in own:
        thread.join(20)
        assert not thread.is_alive()


def test_threads_that_carry_do_not_interrupt_those_that_train(rank: int, size: int) -> None:
    with behind_training():
        if os.sched_getscheduler(0) != os.SCHED_BATCH:
            pytest.skip("the system refuses SCHED_BATCH, or the tests are not scheduled as usual")
    before = set(os.listdir("/proc/self/task"))
    reducer = GroupReducer()
    started = {int(thread) for thread in set(os.listdir("/proc/self/task")) - before}
    reduced(reducer, buckets(size)[rank], named("bit8"))
    assert size == 1 or (started and couriers())
    for thread in started | {courier.native_id for courier in couriers()}:
        assert os.sched_getscheduler(thread) == os.SCHED_BATCH
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    reducer.close()
