"""Compares Adasum with its definition, pair by pair, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from numpy.typing import NDArray
from ranks import ADASUM, WORLDS, numbers, on_ranks, submit, tensor
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Disagreement, WrongArgument

Array = NDArray[Any]
SIZES = [1, 2, 4, 8]
TOLERANCE = {"float16": 2**-10, "float32": 2e-6, "float64": 1e-13}  # of the largest value


def adasum(size: int, groups: list[list[Array]], shares_memory: bool = True, **factors: float) -> list[Array]:
    """Reduce groups[tensor][rank] in one bucket; return the results, which are equal on all ranks."""

    def program(rank: int, engine: _native.Engine) -> list[Array]:
        xs = [group[rank] for group in groups]
        outs = [np.empty_like(x) for x in xs]
        tensors = [tensor(x, out) for x, out in zip(xs, outs, strict=True)]
        engine.wait(engine.allreduce("adasum", tensors, _native.Reduction(op=ADASUM, **factors)))
        assert engine.counters()["buckets"] == 1
        return outs

    results = on_ranks(size, program, shares_memory)
    for other in results[1:]:
        assert [x.tobytes() for x in other] == [x.tobytes() for x in results[0]]
    return results[0]


def assert_close(got: Array, want: Array) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.size:
        largest = float(np.abs(want.astype(np.float64)).max())
        error = np.abs(got.astype(np.float64) - want.astype(np.float64)).max()
        assert error <= TOLERANCE[got.dtype.name] * largest, f"{got.dtype} x{want.size}: {error}"


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", SIZES)
class TestDefinition:
    @pytest.mark.parametrize("dtype", list(TOLERANCE))
    def test_tensors_of_one_bucket_have_coefficients_of_their_own(
        self, size: int, shares_memory: bool, dtype: str
    ) -> None:
        """Counts below the number of ranks leave some ranks' segments empty."""
        counts = [1, 3, 0, 7, 1000, 100_003]
        groups = [[numbers(r, count, dtype, i) + dtype_like(i, dtype) for r in range(size)] for i, count in
                  enumerate(counts)]  # fmt: skip
        for xs, got in zip(groups, adasum(size, groups, shares_memory), strict=True):
            assert_close(got, oracle.adasum(xs))
        if size == 1:
            return
        together = oracle.adasum([np.concatenate([group[r] for group in groups]) for r in range(size)])
        apart = np.concatenate([oracle.adasum(group) for group in groups])
        assert np.abs(together - apart).max() > 0.01  # otherwise the test could not detect it

    def test_factors(self, size: int, shares_memory: bool) -> None:
        xs = [numbers(r, 500, np.float32) for r in range(size)]
        [got] = adasum(size, [xs], shares_memory, prescale=0.3, postscale=5.0)
        assert_close(got, oracle.adasum(xs, 0.3, 5.0))


def dtype_like(offset: int, dtype: str) -> Any:
    """The mean differs by tensor, so that the tensors' dot products differ."""
    return np.dtype(dtype).type(offset)


class TestMeaning:
    @pytest.mark.parametrize("dtype", list(TOLERANCE))
    def test_orthogonal_vectors_add(self, dtype: str) -> None:
        xs = [np.zeros(10, dtype) for _ in range(4)]
        for r, x in enumerate(xs):
            x[2 * r : 2 * r + 2] = r + 1
        [got] = adasum(4, [xs])
        assert got.tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 0, 0]

    @pytest.mark.parametrize("dtype", list(TOLERANCE))
    def test_parallel_vectors_average(self, dtype: str) -> None:
        direction = np.array([1, -2, 4, 0, 8], dtype)
        [same] = adasum(4, [[direction] * 4])
        assert same.tolist() == direction.tolist()
        [got] = adasum(2, [[direction, 3 * direction]])
        assert_close(got, 2 * direction)

    def test_vectors_of_zeros_change_nothing(self) -> None:
        x = numbers(0, 1001, np.float32)
        for with_values in range(4):
            xs = [x if r == with_values else np.zeros_like(x) for r in range(4)]
            [got, zeros] = adasum(4, [xs, [np.zeros_like(x)] * 4])
            assert got.tobytes() == x.tobytes() and not zeros.any()

    def test_products_beyond_the_range_of_the_dtype(self) -> None:
        """Squares of float16 and float32 values can overflow their dtypes: dot products are float64."""
        for dtype, value in ((np.float16, 6e4), (np.float32, 1e30), (np.float16, 6e-8), (np.float32, 1e-40)):
            x = np.full(100, value, dtype)
            [got] = adasum(2, [[x, x]])
            assert got.tobytes() == x.tobytes()

    def test_nan_reaches_every_rank(self) -> None:
        xs = [numbers(r, 100, np.float32) for r in range(4)]
        xs[2][7] = np.nan
        [got, other] = adasum(4, [xs, [np.ones(3, np.float32)] * 4])
        assert np.isnan(got[7]) and other.tolist() == [1.0] * 3


def test_separate_submissions_share_a_bucket_and_no_coefficient() -> None:
    settings = _native.Settings()
    settings.cycle_time = 1000.0  # all are gathered until the first wait
    groups = [[numbers(r, 50, np.float32, i) for r in range(2)] for i in range(5)]

    def program(rank: int, engine: _native.Engine) -> None:
        mine = [group[rank].copy() for group in groups]
        plain = np.ones(3, np.float32)
        handles = [submit(engine, f"t{i}", x, op=ADASUM) for i, x in enumerate(mine)]
        handles.append(submit(engine, "sum", plain))
        for handle in handles:
            engine.wait(handle)
        for xs, got in zip(groups, mine, strict=True):
            assert_close(got, oracle.adasum(xs))
        assert plain.tolist() == [2.0] * 3
        assert engine.counters()["buckets"] == 2

    on_ranks(2, program, settings=settings)


def test_a_number_of_ranks_that_is_no_power_of_two_is_refused() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = np.ones(3, np.float32)
        with refused(WrongArgument, "adasum_size", tensor="x", size=3):
            submit(engine, "x", x, op=ADASUM)
        engine.wait(submit(engine, "x", x))

    on_ranks(3, program)


def test_ranks_that_disagree_on_it() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = np.ones(3, np.float32)
        with refused(
            Disagreement, "disagree", tensor="x", property="reduce op", values={0: "Adasum", 1: "Sum"}
        ):
            engine.wait(submit(engine, "x", x, op=ADASUM - rank))

    on_ranks(2, program)
