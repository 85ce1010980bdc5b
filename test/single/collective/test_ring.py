"""The ring: sums go from rank to rank, and then the results. Ranks as threads that exchange messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from ranks import (
    AVERAGE,
    DTYPES,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    WORLDS,
    add_set,
    allreduce,
    numbers,
    on_ranks,
    predictable,
    submit,
    tensor,
)

from horovod import _native

# The number of each rank's host.
ARRANGEMENTS = [
    pytest.param([0, 0, 0], id="1x3"),
    pytest.param([0, 1, 0, 1], id="2x2"),
    pytest.param([0, 0, 1, 1, 1], id="2+3"),
    pytest.param([0, 1, 2, 0, 1, 2, 0], id="3+2+2"),
]
HALVES = ("float16", "bfloat16")  # sums of theirs are wider than they are, and do not travel


def around(hosts: list[int], program: Any) -> list[Any]:
    return on_ranks(len(hosts), program, False, predictable("ring"), hosts=hosts)


@pytest.mark.parametrize("hosts", ARRANGEMENTS)
class TestAgainstTheOracle:
    @pytest.mark.parametrize("op", [AVERAGE, SUM, MIN, MAX, PRODUCT])
    def test_every_dtype_and_op(self, hosts: list[int], op: int) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for name, (_, dtype) in DTYPES.items():
                if name == "bool":
                    continue
                for count in (0, 1, 1000, 70_001):
                    xs = [numbers(r, count, dtype) for r in range(len(hosts))]
                    got = allreduce(engine, name, xs[rank], op=op)
                    is_half = name in HALVES
                    want = oracle.allreduce(xs, op) if is_half else oracle.ring_allreduce(xs, hosts, op)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} x{count}, rank {rank}")

        around(hosts, program)

    def test_tensors_of_many_steps_together_and_in_place(self, hosts: list[int]) -> None:
        counts = (1_300_003, 17, 400_000)

        def program(rank: int, engine: _native.Engine) -> None:
            given = [[numbers(r, n, np.float32, n) for r in range(len(hosts))] for n in counts]
            mine = [xs[rank].copy() for xs in given]
            reduction = _native.Reduction(AVERAGE, postscale=2.5)
            engine.wait(engine.allreduce("together", [tensor(x) for x in mine], reduction))
            for got, xs in zip(mine, given, strict=True):
                np.testing.assert_array_equal(got, oracle.ring_allreduce(xs, hosts, AVERAGE, 2.5))

        around(hosts, program)

    def test_what_is_scaled_before_and_what_has_codes_is_scattered(self, hosts: list[int]) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            xs = [numbers(r, 20_000, np.float32) for r in range(len(hosts))]
            got = allreduce(engine, "scaled", xs[rank], op=AVERAGE, prescale=0.75)
            np.testing.assert_array_equal(got, oracle.allreduce(xs, AVERAGE, 0.75))
            got = allreduce(engine, "codes", xs[rank], op=AVERAGE, codec=_native.get_codec("bit8"))
            np.testing.assert_array_equal(got, oracle.compressed_allreduce(xs, "bit8", op=AVERAGE))

        around(hosts, program)


def test_any_is_any_and_all_is_all() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        xs = [numbers(r, 5000, np.bool_) for r in range(5)]
        for op, want in ((SUM, np.any(xs, 0)), (MIN, np.all(xs, 0))):
            np.testing.assert_array_equal(allreduce(engine, f"{op}", xs[rank], op=op), want)

    around([0, 0, 1, 1, 1], program)


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
    """Messages of buckets that follow each other do not mix."""

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
