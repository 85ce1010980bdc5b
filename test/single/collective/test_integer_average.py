"""The Average of integers is exact on every route, even if their sum overflows the dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import oracle
import pytest
from emulated_gpu import group_allreduce, over
from numpy.typing import NDArray
from ranks import (
    AVERAGE,
    DTYPES,
    SUM,
    add_set,
    allreduce,
    in_threads,
    on_ranks,
    predictable,
    tensor,
)
from tcp_worlds import tcp_worlds

from horovod import _native

INTEGERS = ["uint8", "int8", "int16", "int32", "int64"]


def extremes(rank: int, dtype: str, count: int = 3000) -> NDArray[Any]:
    """Numbers of the whole range; at some places all ranks have its minimum or maximum."""
    limits = np.iinfo(DTYPES[dtype][1])
    low, high = int(limits.min), int(limits.max)
    x = np.random.default_rng(rank).integers(low, high, count, dtype=DTYPES[dtype][1], endpoint=True)
    x[:8] = [high, low, high - rank, low + rank, high if rank % 2 else low, rank, low // 2, 0]
    x[8] = -rank if low < 0 else rank
    return x


def everybodys(size: int, dtype: str, count: int = 3000) -> list[NDArray[Any]]:
    return [extremes(rank, dtype, count) for rank in range(size)]


def check_all_dtypes(rank: int, engine: _native.Engine, size: int) -> None:
    for dtype in INTEGERS:
        for count in (9, 3000):
            xs = everybodys(size, dtype, count)
            got = allreduce(engine, f"{dtype}.{count}", xs[rank], op=AVERAGE)
            np.testing.assert_array_equal(
                got, oracle.integer_average(xs), err_msg=f"{dtype} x{count}, rank {rank}"
            )


ROUTES: dict[str, dict[str, Any]] = {
    "window": {},
    "exchange": {"shares_memory": False},
    "hierarchical": {"hosts": (0, 0, 1), "settings": predictable("hierarchical")},
    **{
        name: {"shares_memory": False, "settings": predictable(name)}
        for name in ("gather", "scatter", "ring")
    },
}


@pytest.mark.parametrize("route", ROUTES)
def test_every_route(route: str) -> None:
    on_ranks(3, lambda rank, engine: check_all_dtypes(rank, engine, 3), **ROUTES[route])


@pytest.mark.parametrize("size", [1, 2, 4, 7])
def test_every_number_of_ranks(size: int) -> None:
    on_ranks(size, lambda rank, engine: check_all_dtypes(rank, engine, size))


def test_over_tcp() -> None:
    worlds = tcp_worlds(3)

    def body(rank: int) -> None:
        engine = _native.Engine(worlds[rank], predictable())
        try:
            check_all_dtypes(rank, engine, 3)
        finally:
            engine.shutdown()

    in_threads(3, body)


def test_what_is_expected_is_what_a_few_numbers_are_by_hand() -> None:
    xs = [np.array([200, 3, 0], np.uint8), np.array([200, 4, 1], np.uint8)]
    assert oracle.integer_average(xs).tolist() == [200, 3, 0]
    ys = [np.array([2**62, -(2**63), -3, 2**63 - 1], np.int64), np.array([2**62, -(2**63), -4, -1], np.int64)]
    assert oracle.integer_average(ys).tolist() == [2**62, -(2**63), -3, 2**62 - 1]

    def program(rank: int, engine: _native.Engine) -> None:
        assert allreduce(engine, "x", xs[rank], op=AVERAGE).tolist() == [200, 3, 0]
        assert allreduce(engine, "y", ys[rank], op=AVERAGE).tolist() == [2**62, -(2**63), -3, 2**62 - 1]

    on_ranks(2, program)


@pytest.mark.parametrize("scales", [(0.5, 1.0), (1.0, 0.5), (1.0, 1.9), (0.3, 0.7)])
def test_factors(scales: tuple[float, float]) -> None:
    prescale, postscale = scales

    def program(rank: int, engine: _native.Engine) -> None:
        for dtype in INTEGERS:
            xs = everybodys(3, dtype)
            got = allreduce(engine, dtype, xs[rank], op=AVERAGE, prescale=prescale, postscale=postscale)
            np.testing.assert_array_equal(got, oracle.integer_average(xs, prescale, postscale), err_msg=dtype)

    on_ranks(3, program)


def test_sums_wrap_as_before() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        assert allreduce(engine, "x", np.array([200], np.uint8), op=SUM).tolist() == [144]

    on_ranks(2, program)


def test_a_group_of_several_dtypes_in_place() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        own = [extremes(rank, dtype, 50) for dtype in INTEGERS] + [np.full(3, rank, np.float32)]
        engine.wait(engine.allreduce("group", [tensor(x) for x in own], _native.Reduction(AVERAGE), 0))
        for x, dtype in zip(own, INTEGERS, strict=False):
            np.testing.assert_array_equal(x, oracle.integer_average(everybodys(3, dtype, 50)))
        assert own[-1].tolist() == [1.0] * 3

    on_ranks(3, program)


def test_a_process_set() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        members = add_set(engine, 0, 2)
        if rank != 1:
            xs = [extremes(r, "int64") for r in (0, 2)]
            got = allreduce(engine, "x", xs[rank // 2], members, op=AVERAGE)
            np.testing.assert_array_equal(got, oracle.integer_average(xs))
        engine.wait(engine.barrier("end", 0))

    on_ranks(3, program)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_a_rank_that_has_joined_counts_with_zeros(dtype: str) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        xs = [*everybodys(2, dtype), np.zeros(3000, DTYPES[dtype][1])]
        if rank < 2:
            got = allreduce(engine, "x", xs[rank], op=AVERAGE)
            np.testing.assert_array_equal(got, oracle.integer_average(xs))
        engine.wait(engine.join())

    on_ranks(3, program)


@pytest.mark.parametrize("shares_memory", [True, False])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_reducescatter(dtype: str, shares_memory: bool) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        xs = [x.reshape(-1, 5) for x in everybodys(3, dtype, 35)]
        own = xs[rank].copy()
        rows = slice([0, 3, 5][rank], [3, 5, 7][rank])  # the first 7 % 3 ranks have a row more
        out = np.empty_like(own[rows])
        described = _native.Tensor(own.ctypes.data, out.ctypes.data, [7, 5], DTYPES[dtype][0])
        engine.wait(engine.reducescatter("x", [described], _native.Reduction(AVERAGE), 0))
        np.testing.assert_array_equal(out, oracle.integer_average(xs)[rows])
        assert own.tobytes() == xs[rank].tobytes()

    on_ranks(3, program, shares_memory)


@pytest.mark.parametrize("transport", ["nccl", "host"])
@pytest.mark.parametrize("counts", [(3000,), (9, 3000, 40)], ids=str)
def test_tensors_of_gpus(transport: str, counts: Sequence[int]) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        for dtype in INTEGERS:
            xs = [everybodys(2, dtype, count) for count in counts]
            sums = group_allreduce(engine, [x[rank] for x in xs], rank, op=AVERAGE)
            for got, x in zip(sums, xs, strict=True):
                np.testing.assert_array_equal(got, oracle.integer_average(x), err_msg=dtype)

    on_ranks(2, program, settings=over(transport))
