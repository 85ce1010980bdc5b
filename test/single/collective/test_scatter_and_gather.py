"""The results of alltoall, reduce-scatter and grouped allgather on each rank, by every route."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from numpy.typing import NDArray
from ranks import (
    AVERAGE,
    DTYPES,
    MAX,
    SUM,
    WORLDS,
    allreduce,
    laid_out,
    numbers,
    on_ranks,
    received,
    source_only,
    submit,
    tensor,
)
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Disagreement, WrongArgument

Array = NDArray[Any]
SIZES = [1, 2, 3, 4, 8]


def alltoall(engine: _native.Engine, x: Array, splits: list[int]) -> tuple[list[int], Array]:
    result = engine.wait(engine.alltoall("a2a", source_only(x), splits))
    return result.sizes, received(result, x)


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", SIZES)
class TestAlltoall:
    def test_random_splits_with_zeros_and_rows_left_out(self, size: int, shares_memory: bool) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            rng = np.random.default_rng(7)  # alike on all ranks
            for _, dtype in DTYPES.values():
                for width in (1, 3, 5000):
                    splits = rng.integers(0, 5, (size, size)) * rng.integers(0, 2, (size, size))
                    splits[rng.integers(size)] = 0  # one rank sends nothing
                    left_out = rng.integers(0, 3, size)
                    rows = splits.sum(1) + left_out
                    xs = [numbers(r, rows[r] * width, dtype).reshape(-1, width) for r in range(size)]
                    begin = splits[:, :rank].sum(1)
                    want = np.concatenate(
                        [x[b : b + n] for x, b, n in zip(xs, begin, splits[:, rank], strict=True)]
                    )
                    sizes, got = alltoall(engine, xs[rank], splits[rank].tolist())
                    assert sizes == splits[:, rank].tolist()
                    np.testing.assert_array_equal(got, want)

        on_ranks(size, program, shares_memory)

    def test_without_splits_everybody_gets_as_much(self, size: int, shares_memory: bool) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for step in range(4):  # from the second time on, the request is known by its number
                x = np.arange(size * 2, dtype=np.int64) + 100 * rank + 1000 * step
                sizes, got = alltoall(engine, x, [])
                assert sizes == [2] * size
                want = [2 * rank + i + 100 * r + 1000 * step for r in range(size) for i in range(2)]
                assert got.tolist() == want
            assert engine.counters()["cache_hits"] == 3
            assert engine.counters()["wire_bytes"] == 4 * (size - 1) * 16

        on_ranks(size, program, shares_memory)

    def test_splits_may_change_under_a_known_request(self, size: int, shares_memory: bool) -> None:
        """The shape stays, so the request is announced by number; the splits are not part of it."""

        def program(rank: int, engine: _native.Engine) -> None:
            x = np.full(size, rank, np.int32)
            for target in range(size):
                sizes, got = alltoall(engine, x, [size if r == target else 0 for r in range(size)])
                assert sizes == [size if rank == target else 0] * size
                everything = [r for r in range(size) for _ in range(size)]
                assert got.tolist() == (everything if rank == target else [])

        on_ranks(size, program, shares_memory)


class TestAlltoallRefusals:
    @pytest.mark.parametrize(
        ("splits", "code", "facts"),
        [
            ([], "rows_not_divisible", {"rows": 3, "size": 2, "remedy": "pass splits"}),
            ([1, 1, 1], "splits_of_other_length", {"entries": 3, "size": 2}),
            ([4, -1], "splits_negative", {}),
            ([2, 2], "splits_too_large", {"sum": 4, "rows": 3}),
        ],
    )
    def test_wrong_splits_are_refused_where_they_are(
        self, splits: list[int], code: str, facts: dict[str, Any]
    ) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x = np.ones(3, np.float32)
            with refused(WrongArgument, code, tensor="a2a", **facts):
                alltoall(engine, x, splits)
            assert alltoall(engine, x, [1, 2])[0] == [rank + 1] * 2

        on_ranks(2, program)

    @pytest.mark.parametrize(
        ("shapes", "property_", "values"),
        [
            (((2, 3), (2, 4)), "dimensions after the first", {0: "(3,)", 1: "(4,)"}),
            (((2, 3), (2,)), "number of dimensions", {0: "2", 1: "1"}),
            (((), (2,)), "number of dimensions", {0: "0", 1: "1"}),
            (((), ()), "", {}),
        ],
    )
    def test_ranks_disagree(
        self, shapes: tuple[tuple[int, ...], ...], property_: str, values: dict[int, str]
    ) -> None:
        about = (
            {"property": property_, "values": values} if values else {"verb": "scatter", "call": "alltoall"}
        )

        def program(rank: int, engine: _native.Engine) -> None:
            code = "disagree" if values else "no_dimension"
            with refused(Disagreement, code, tensor="a2a", **about):
                alltoall(engine, np.ones(shapes[rank], np.float32), [])
            assert alltoall(engine, np.ones(2, np.float32), [])[0] == [1, 1]

        on_ranks(2, program)


def own_rows(x: Array, rank: int, size: int) -> Array:
    """np.array_split gives the first ranks one more, as the core does."""
    return np.array_split(x, size)[rank]


def reducescatter(
    engine: _native.Engine, rank: int, size: int, xs: list[Array], **reduction: Any
) -> list[Array]:
    outs = [np.empty_like(own_rows(x, rank, size)) for x in xs]
    tensors = [tensor(x, out) for x, out in zip(xs, outs, strict=True)]
    engine.wait(engine.reducescatter("rs", tensors, _native.Reduction(**reduction)))
    return outs


def exact(xs: list[Array], op: int, prescale: float = 1.0, postscale: float = 1.0) -> Array:
    if xs[0].dtype == np.bool_:  # the mean of booleans is True if all are
        return np.stack(xs).all(0) if op == AVERAGE else np.stack(xs).any(0)
    return oracle.allreduce(xs, op, prescale, postscale)


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", SIZES)
class TestReducescatter:
    @pytest.mark.parametrize("op", [AVERAGE, SUM])
    @pytest.mark.parametrize("factors", [(1.0, 1.0), (0.75, 2.5)])
    def test_every_dtype(self, size: int, shares_memory: bool, op: int, factors: tuple[float, float]) -> None:
        """Also with fewer rows than ranks, and without rows."""

        def program(rank: int, engine: _native.Engine) -> None:
            pre, post = factors
            for name, (_, dtype) in DTYPES.items():
                for rows in (0, 1, size, 7, 50):
                    xs = [numbers(r, rows * 300, dtype, rows).reshape(rows, 300) for r in range(size)]
                    [got] = reducescatter(engine, rank, size, [xs[rank]], op=op, prescale=pre, postscale=post)
                    want = own_rows(exact(xs, op, pre, post), rank, size)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} x{rows}, rank {rank}")

        on_ranks(size, program, shares_memory)

    @pytest.mark.parametrize("codec", ["bit16", "bit8"])
    def test_compressed(self, size: int, shares_memory: bool, codec: str) -> None:
        """Each contribution is quantised once, in blocks that begin with a rank's rows."""

        def program(rank: int, engine: _native.Engine) -> None:
            for name in ("float16", "bfloat16", "float32", "float64"):
                for rows, width in ((1, 5), (5, 127), (size, 128), (9, 4099)):
                    xs = [numbers(r, rows * width, DTYPES[name][1]).reshape(rows, width) for r in range(size)]
                    [got] = reducescatter(
                        engine, rank, size, [xs[rank]], op=AVERAGE, prescale=0.5, postscale=3.0,
                        codec=_native.get_codec(codec),
                    )  # fmt: skip
                    mine = [own_rows(x, rank, size) for x in xs]
                    if size == 1:
                        want = oracle.allreduce(mine, AVERAGE, 0.5, 3.0)
                    else:
                        want = oracle.compressed_sum(mine, codec, 128, AVERAGE, 0.5, 3.0)
                        want = want.astype(got.dtype).reshape(got.shape)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} {rows}x{width}, rank {rank}")

        on_ranks(size, program, shares_memory)

    @pytest.mark.parametrize("codec", [None, "bit8"])
    def test_a_group_is_one_bucket_of_tensors_of_their_own(
        self, size: int, shares_memory: bool, codec: str | None
    ) -> None:
        shapes = [(3,), (0, 4), (size, 130), (17, 2, 3), (1, 1)]

        def program(rank: int, engine: _native.Engine) -> None:
            native = _native.get_codec(codec) if codec else None
            groups = [
                [numbers(r, int(np.prod(s)), np.float32, i).reshape(s) for r in range(size)]
                for i, s in enumerate(shapes)
            ]
            got = reducescatter(engine, rank, size, [xs[rank] for xs in groups], codec=native)
            for xs, one in zip(groups, got, strict=True):
                mine = [own_rows(x, rank, size) for x in xs]
                compressed = codec is not None and size > 1
                want = oracle.compressed_sum(mine, codec) if compressed else oracle.allreduce(mine)
                np.testing.assert_array_equal(one, want.reshape(one.shape))
            counters = engine.counters()
            assert (counters["buckets"], counters["operations"]) == (1, len(shapes))

        on_ranks(size, program, shares_memory)


@pytest.mark.parametrize("codec", [None, "bit8"])
def test_a_long_reducescatter_goes_in_chunks(codec: str | None) -> None:
    """Slices of more than 4 MiB with odd lengths."""

    def program(rank: int, engine: _native.Engine) -> None:
        xs = [numbers(r, 2_500_001, np.float32) for r in range(2)]
        native = _native.get_codec(codec) if codec else None
        [got] = reducescatter(engine, rank, 2, [xs[rank]], codec=native)
        mine = [own_rows(x, rank, 2) for x in xs]
        want = oracle.compressed_sum(mine, codec) if codec else oracle.allreduce(mine)
        np.testing.assert_array_equal(got, want)

    on_ranks(2, program)


def test_separate_reducescatters_of_one_kind_are_fused() -> None:
    settings = _native.Settings()
    settings.cycle_time = 1000.0  # all are gathered until the first wait

    def program(rank: int, engine: _native.Engine) -> None:
        xs = [np.full((4, i + 1), rank + i, np.float32) for i in range(6)]
        outs = [np.empty((2, i + 1), np.float32) for i in range(6)]
        handles = [
            engine.reducescatter(f"rs{i}", [tensor(x, out)], _native.Reduction(op=AVERAGE if i == 5 else SUM))
            for i, (x, out) in enumerate(zip(xs, outs, strict=True))
        ]
        summed = np.ones(3, np.float32)
        handles.append(submit(engine, "sum", summed))
        for handle in handles:
            engine.wait(handle)
        for i, out in enumerate(outs):
            assert (out == (i + 0.5 if i == 5 else 2 * i + 1)).all()
        assert summed.tolist() == [2.0] * 3
        assert engine.counters()["buckets"] == 3  # the sums, the average, the allreduce

    on_ranks(2, program, settings=settings)


class TestReducescatterRefusals:
    def test_before_anything_is_sent(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x, out = np.ones((), np.float32), np.ones((), np.float32)
            with refused(WrongArgument, "scatter_without_dimensions", tensor="rs"):
                engine.reducescatter("rs", [tensor(x, out)], _native.Reduction())
            y = np.ones(4, np.float32)
            with refused(WrongArgument, "reducescatter_adasum", tensor="rs"):
                engine.reducescatter("rs", [tensor(y, y)], _native.Reduction(op=2))
            assert allreduce(engine, "x", y).tolist() == [2.0] * 4

        on_ranks(2, program)

    def test_ranks_disagree(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x = np.ones(4, np.float32)
            bit8 = [_native.get_codec("bit8"), None][rank]

            def scatter(x: np.ndarray = x, **how: Any) -> Any:
                return reducescatter(engine, rank, 2, [x], **how)

            for property_, first, second, call in (
                ("shape", "(4,)", "(5,)", lambda: scatter(np.ones(4 + rank, np.float32))),
                ("shape", "(4,)", "(4, 1)", lambda: scatter(np.ones((4, 1) if rank else 4, np.float32))),
                ("reduce op", "Average", "Sum", lambda: scatter(op=[AVERAGE, SUM][rank])),
                ("reduce op", "Max", "Sum", lambda: scatter(op=[MAX, SUM][rank])),
                ("postscale_factor", "1", "2", lambda: scatter(postscale=1.0 + rank)),
                ("compression codec", "bit8/128", "none", lambda: scatter(codec=bit8)),
                (
                    *("operation", "REDUCESCATTER", "ALLREDUCE"),
                    lambda: allreduce(engine, "rs", x) if rank else scatter(),
                ),
            ):
                values = {0: first, 1: second}
                with refused(Disagreement, "disagree", tensor="rs", property=property_, values=values):
                    call()
            [got] = reducescatter(engine, rank, 2, [x])
            assert got.tolist() == [2.0, 2.0]

        on_ranks(2, program)


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", SIZES)
def test_a_group_of_allgathers(size: int, shares_memory: bool) -> None:
    """Results follow each other tensor by tensor; sizes in that order, by rank in each."""

    def program(rank: int, engine: _native.Engine) -> None:
        for _, dtype in DTYPES.values():
            for step in (0, 0, 1):  # known by its number, then with other rows
                rows = [[(r + t + step) % 3 for r in range(size)] for t in range(4)]
                widths = [(), (3,), (1, 2), (70_000,)]
                xs = [
                    [numbers(r, n * int(np.prod(w)), dtype, t).reshape(n, *w) for r, n in enumerate(rows[t])]
                    for t, w in enumerate(widths)
                ]
                result = engine.wait(engine.allgather("g", [source_only(x[rank]) for x in xs]))
                assert result.sizes == [n for one in rows for n in one]
                want = [np.concatenate(x) for x in xs]
                assert result.nbytes == len(laid_out(want))
                received = np.from_dlpack(result.buffer()).tobytes() if result.nbytes else b""
                start = 0
                for x in want:
                    start += -start % 16
                    assert received[start : start + x.nbytes] == x.tobytes()
                    start += x.nbytes

    on_ranks(size, program, shares_memory)


def test_groups_of_allgathers_that_disagree() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x, y = np.ones((2, 3), np.float32), np.ones((2, 4 + rank), np.float32)
        for members, property_, first, second in (
            ([x] * (1 + rank), "number of tensors in the group", "1", "2"),
            ([x, y], "dimensions after the first", "(3,) (4,)", "(3,) (5,)"),
            ([x, x[0] if rank else x], "number of dimensions", "2 2", "2 1"),
        ):
            values = {0: first, 1: second}
            with refused(Disagreement, "disagree", tensor="g", property=property_, values=values):
                engine.wait(engine.allgather("g", [source_only(member) for member in members]))
        with refused(Disagreement, "no_dimension", tensor="g", verb="gather"):
            engine.wait(engine.allgather("g", [source_only(x), source_only(np.ones((), np.float32))]))
        assert engine.counters()["refusals"] == 4

    on_ranks(2, program)
