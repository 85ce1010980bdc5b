"""The ring, with ranks as threads that exchange messages: sums pass from rank to rank, then the results.

test_collectives.py compares its results with NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from ranks import (
    AVERAGE,
    SUM,
    WORLDS,
    add_set,
    allreduce,
    numbers,
    on_ranks,
    predictable,
    submit,
)

from horovod import _native


def around(hosts: list[int], program: Any) -> list[Any]:
    return on_ranks(len(hosts), program, False, predictable("ring"), hosts=hosts)


def test_the_ring_of_a_process_set_has_its_members_only() -> None:
    hosts, members = [0, 0, 1, 1, 1], [0, 2, 3, 4]

    def program(rank: int, engine: _native.Engine) -> None:
        some = add_set(engine, *members)
        if rank in members:
            xs = [numbers(r, 100_000, np.float32) for r in members]
            got = allreduce(engine, "x", xs[members.index(rank)], some, op=AVERAGE)
            want = oracle.ring_allreduce(xs, [hosts[r] for r in members], AVERAGE)
            np.testing.assert_array_equal(got, want)
        engine.wait(engine.barrier("end"))

    around(hosts, program)


@pytest.mark.parametrize("shares_memory", WORLDS)
def test_one_memory_and_two_ranks_need_no_ring(shares_memory: bool) -> None:
    size = 5 if shares_memory else 2

    def program(rank: int, engine: _native.Engine) -> None:
        xs = [numbers(r, 30_000, np.float32) for r in range(size)]
        got = allreduce(engine, "x", xs[rank], op=AVERAGE)
        np.testing.assert_array_equal(got, oracle.allreduce(xs, AVERAGE))

    on_ranks(size, program, shares_memory, predictable("ring"))


def test_many_at_a_time_beside_other_operations() -> None:
    """Messages of consecutive buckets do not mix."""

    def program(rank: int, engine: _native.Engine) -> None:
        xs = [np.full(50_000 + 1000 * i, rank + i, np.float32) for i in range(20)]
        handles = [submit(engine, f"{i}", x, op=SUM) for i, x in enumerate(xs)]
        engine.wait(engine.barrier("meanwhile"))
        for handle in handles:
            engine.wait(handle)
        for i, x in enumerate(xs):
            np.testing.assert_array_equal(x, np.float32(6 + 4 * i))

    settings = predictable("ring")
    settings.fusion_threshold = 300_000
    on_ranks(4, program, False, settings, hosts=[0, 0, 1, 1])
