"""The contract of every route: shared memory and messages give the same exact values."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from allreduce_places import PLACES, Place
from ranks import (
    AVERAGE,
    DTYPES,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    WORLDS,
    allreduce,
    numbers,
    on_ranks,
    predictable,
    received,
    source_only,
    tensor,
)

from horovod import _native

SIZES = [1, 2, 3, 5, 7]


@pytest.mark.parametrize("place", PLACES)
class TestAllreduce:
    @pytest.mark.parametrize("op", [AVERAGE, SUM, MIN, MAX, PRODUCT])
    def test_every_dtype_and_op(self, place: Place, op: int) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for name, (_, dtype) in DTYPES.items():
                if name == "bool" and op == AVERAGE:
                    continue  # another test covers the mean of booleans
                for count in (0, 1, 1000, 70_001):
                    xs = [numbers(r, count, dtype) for r in range(place.size)]
                    got = allreduce(engine, name, xs[rank], op=op)
                    if name == "bool":
                        want = np.any(xs, 0) if op in (SUM, MAX) else np.all(xs, 0)
                    else:
                        want = place.allreduce(xs, op=op)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} x{count}, rank {rank}")

        place.run(program)

    def test_scale_factors(self, place: Place) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for name, (_, dtype) in DTYPES.items():
                if name == "bool":
                    continue
                for op in (AVERAGE, SUM):
                    xs = [numbers(r, 20_000, dtype) for r in range(place.size)]
                    got = allreduce(engine, name, xs[rank], op=op, prescale=0.75, postscale=2.5)
                    want = place.allreduce(xs, "", op, 0.75, 2.5)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name}, rank {rank}")

        place.run(program)

    @pytest.mark.parametrize("codec", ["bit16", "bit8"])
    def test_compressed_sums_are_those_of_the_numpy_codec(self, place: Place, codec: str) -> None:
        if place.size == 1:
            pytest.skip("in a world of one nothing crosses a wire, and nothing is quantised")
        if place.algorithm == "ring":
            pytest.skip("codes do not travel round a ring; that they are scattered, the next test asks")

        def program(rank: int, engine: _native.Engine) -> None:
            for name in ("float16", "bfloat16", "float32", "float64"):
                for count in (1, 127, 128, 5000, 300_001):
                    xs = [numbers(r, count, DTYPES[name][1]) for r in range(place.size)]
                    got = allreduce(
                        engine, name, xs[rank], op=AVERAGE, prescale=0.5, codec=_native.get_codec(codec)
                    )
                    want = place.allreduce(xs, codec, AVERAGE, 0.5)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} x{count}, rank {rank}")

        place.run(program)

    @pytest.mark.parametrize("codec", ["", "bit16", "bit8"])
    def test_a_group_is_reduced_tensor_by_tensor(self, place: Place, codec: str) -> None:
        """Blocks never cross tensors, wherever a bucket is cut; empty and 0-dim members are correct."""
        shapes = [(3,), (), (0, 5), (127,), (129, 3), (1,), (place.large(codec),), (2, 2, 2)]

        def program(rank: int, engine: _native.Engine) -> None:
            xs = [
                [numbers(r, int(np.prod(shape)), np.float32, i).reshape(shape) for r in range(place.size)]
                for i, shape in enumerate(shapes)
            ]
            mine = [x[rank].copy() for x in xs]
            native = _native.get_codec(codec) if codec else None
            reduction = _native.Reduction(AVERAGE, postscale=2.5, codec=native)
            engine.wait(engine.allreduce("group", [tensor(x) for x in mine], reduction))
            for x, got in zip(xs, mine, strict=True):
                want = place.allreduce(x, codec, AVERAGE, 1.0, 2.5)
                np.testing.assert_array_equal(got, want, err_msg=f"shape {got.shape}, rank {rank}")

        place.run(program)

    @pytest.mark.parametrize("codec", ["", "bit16", "bit8"])
    def test_nan_and_infinity_reach_every_rank(self, place: Place, codec: str) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x = np.ones(1000, np.float32)
            if rank == place.size - 1:
                x[5], x[700] = np.nan, np.inf
            got = allreduce(engine, "x", x, codec=_native.get_codec(codec) if codec else None)
            assert not np.isfinite(got[[5, 700]]).any()
            others = np.delete(got, [5, 700])
            np.testing.assert_array_equal(others, np.full_like(others, place.size))

        place.run(program)

    def test_in_place_and_unaligned_tensors(self, place: Place) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for count in (3, 5000, 200_003):
                xs = [numbers(r, count + 1, np.float32)[1:] for r in range(place.size)]
                x = numbers(rank, count + 1, np.float32)[1:]  # starts 4 bytes past any alignment
                engine.wait(engine.allreduce("x", [tensor(x)], _native.Reduction()))
                np.testing.assert_array_equal(x, place.allreduce(xs))

        place.run(program)


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("algorithm", ["gather", "scatter"])
def test_the_algorithm_decides_how_often_sums_are_quantised(
    size: int, shares_memory: bool, algorithm: str
) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        for count in (5, 5000, 600_001):
            xs = [numbers(r, count, np.float32) for r in range(size)]
            got = allreduce(engine, "x", xs[rank], op=AVERAGE, codec=_native.get_codec("bit8"))
            once = oracle.compressed_sum(xs, "bit8", op=AVERAGE) if size > 1 else xs[0]
            want = oracle.requantised(once, "bit8") if algorithm == "scatter" and size > 1 else once
            np.testing.assert_array_equal(got, want, err_msg=f"{count} on rank {rank}")

    on_ranks(size, program, shares_memory, predictable(algorithm))


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", SIZES)
def test_allgather_of_differing_rows(size: int, shares_memory: bool) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        for name, (_, dtype) in DTYPES.items():
            for rows in (
                [1] * size,
                list(range(size)),
                [0] * size,
                [50_000 if r == 1 else 2 for r in range(size)],
            ):
                x = np.full((rows[rank], 3), rank % 2, dtype)
                result = engine.wait(engine.allgather(name, [source_only(x)]))
                assert result.sizes == rows
                want = np.concatenate([np.full((n, 3), r % 2, dtype) for r, n in enumerate(rows)])
                assert result.nbytes == want.nbytes
                np.testing.assert_array_equal(received(result, x), want)

    on_ranks(size, program, shares_memory)


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", SIZES)
def test_broadcast_from_every_root(size: int, shares_memory: bool) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        for root in range(size):
            for count in (0, 1, 3_000_001):
                x = np.full(count, rank, np.int16)
                out = np.empty_like(x)
                engine.wait(engine.broadcast("x", tensor(x, out), root))
                np.testing.assert_array_equal(out, np.full(count, root, np.int16))
                np.testing.assert_array_equal(x, np.full(count, rank, np.int16))

    on_ranks(size, program, shares_memory)


def test_scaled_integers_saturate() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = np.array([100, 3], np.uint8)
        assert allreduce(engine, "x", x, postscale=2.0).tolist() == [255, 12]
        y = np.array([100, -3], np.int64)
        assert allreduce(engine, "y", y, postscale=1e30).tolist() == [2**63 - 1, -(2**63)]

    on_ranks(2, program)


def test_the_mean_of_truth_values_is_whether_all_are_true() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        got = allreduce(engine, "x", np.array([True, rank == 0, False]), op=AVERAGE)
        assert got.tolist() == [True, False, False]

    on_ranks(3, program)


def test_nan_wins_minimum_and_maximum() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = np.array([np.nan if rank == 1 else 1.0, 2.0], np.float32)
        for op in (MIN, MAX):
            got = allreduce(engine, "x", x, op=op)
            assert np.isnan(got[0]) and got[1] == 2.0

    on_ranks(3, program)


def test_saturated_halves_are_counted() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = np.array([70000.0, 1.0, np.inf, -1e9], np.float32)
        got = allreduce(engine, "x", x, codec=_native.get_codec("bit16"))
        assert got.tolist() == [2 * 65504.0, 2.0, np.inf, -2 * 65504.0]
        assert engine.counters()["saturated"] == 2

    on_ranks(2, program)
