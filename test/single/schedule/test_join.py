"""Join: a rank without data left changes nothing in the others' allreduces, until all ranks have joined."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import oracle
import pytest
from numpy.typing import NDArray
from ranks import (
    ADASUM,
    AVERAGE,
    DTYPES,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    WORLDS,
    add_set,
    allreduce,
    ends_within,
    numbers,
    on_ranks,
    predictable,
    source_only,
    stepped_engines,
    stepper,
    submit,
    tensor,
)
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Disagreement, ShutDown, WrongArgument


def join(engine: _native.Engine) -> int:
    [last] = engine.wait(engine.join()).sizes
    return last


PLACES = [
    *(
        pytest.param({"shares_memory": world, "settings": predictable(way)}, id=f"{name} {way}")
        for world, name in ((True, "window"), (False, "exchange"))
        for way in ("gather", "scatter")
    ),
    pytest.param({"hosts": [0, 0, 1], "settings": predictable("hierarchical")}, id="hierarchical"),
]


def extremes(rank: int, dtype: Any) -> NDArray[Any]:
    """Numbers on both sides of zero; some ranks have only the dtype's minimum or maximum."""
    x = numbers(rank, 3000, dtype)
    if np.dtype(dtype) == np.bool_:
        return x
    if np.issubdtype(dtype, np.integer):
        least, largest = np.iinfo(dtype).min, np.iinfo(dtype).max
        x = (x - 2).astype(dtype) if least < 0 else x
    else:
        least, largest = -np.inf, np.inf
    x[:100], x[100:200] = least, largest
    return x


@pytest.mark.parametrize("place", PLACES)
class TestNeutralElements:
    @pytest.mark.parametrize("op", [MIN, MAX, PRODUCT])
    def test_every_dtype(self, place: dict[str, Any], op: int) -> None:
        """Each rank joins first in turn; the result is that of the others."""

        def program(rank: int, engine: _native.Engine) -> None:
            for early in range(3):
                for name, (_, dtype) in DTYPES.items():
                    if rank == early:
                        continue
                    xs = [extremes(r, dtype) for r in range(3) if r != early]
                    got = allreduce(engine, name, extremes(rank, dtype), op=op)
                    np.testing.assert_array_equal(got, oracle.allreduce(xs, op), err_msg=name)
                join(engine)

        on_ranks(3, program, **place)

    def test_scaled(self, place: dict[str, Any]) -> None:
        """A factor that reverses the order, a factor 0, and one too small for float32."""

        def program(rank: int, engine: _native.Engine) -> None:
            for op, factor in itertools.product((MIN, MAX), (0.5, -0.5, 0.0, 1e-60)) if rank else ():
                for name, (_, dtype) in DTYPES.items():
                    if name == "uint8" and factor < 0:
                        continue  # the oracle does not saturate
                    xs = [numbers(r, 1000, dtype) for r in (1, 2)]
                    got = allreduce(engine, name, xs[rank - 1], op=op, prescale=factor)
                    want = oracle.allreduce(xs, op, factor)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} times {factor}")
            join(engine)

        on_ranks(3, program, **place)


def test_a_product_of_scaled_factors_is_refused() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = np.full(3, 2.0, np.float32)
        if rank != 1:
            with refused(Disagreement, "product_after_join", tensor="x", ranks=(1,), operation="ALLREDUCE"):
                allreduce(engine, "x", x, op=PRODUCT, prescale=0.5)
            assert allreduce(engine, "x", x, op=PRODUCT, postscale=0.5).tolist() == [2.0] * 3
        join(engine)
        assert allreduce(engine, "x", x, op=PRODUCT, prescale=0.5).tolist() == [1.0] * 3

    on_ranks(3, program)


@pytest.mark.parametrize("shares_memory", WORLDS)
class TestStandIns:
    @pytest.mark.parametrize("op", [AVERAGE, SUM])
    def test_every_dtype(self, shares_memory: bool, op: int) -> None:
        """Each rank joins first in turn; an average still divides by all ranks."""

        def program(rank: int, engine: _native.Engine) -> None:
            for early in range(3):
                for name, (_, dtype) in DTYPES.items():
                    if rank == early or (name == "bool" and op == AVERAGE):
                        continue  # the oracle has no mean of booleans
                    xs = [numbers(r, 5000, dtype) * dtype(r != early) for r in range(3)]
                    got = allreduce(engine, name, xs[rank], op=op)
                    np.testing.assert_array_equal(got, oracle.allreduce(xs, op), err_msg=name)
                assert 0 <= join(engine) < 3

        on_ranks(3, program, shares_memory)

    @pytest.mark.parametrize("codec", ["bit16", "bit8", "bit8/32"])
    @pytest.mark.parametrize("size", [2, 3])
    def test_codecs_and_groups_and_factors(self, shares_memory: bool, codec: str, size: int) -> None:
        """A joined rank learns the codec, its block and the shapes from the others' request."""
        name, _, block = codec.partition("/")
        counts = [3, 0, 700]

        def program(rank: int, engine: _native.Engine) -> None:
            if rank != 0:
                native = _native.get_codec(name, int(block or 0))
                xs = [
                    [numbers(r, count, np.float32) * np.float32(r != 0) for r in range(size)]
                    for count in counts
                ]
                outs = [np.empty_like(x[rank]) for x in xs]
                tensors = [tensor(x[rank], out) for x, out in zip(xs, outs, strict=True)]
                reduction = _native.Reduction(op=AVERAGE, prescale=0.5, postscale=3.0, codec=native)
                engine.wait(engine.allreduce("group", tensors, reduction))
                for x, got in zip(xs, outs, strict=True):
                    want = oracle.compressed_allreduce(x, name, int(block or 128), AVERAGE, 0.5, 3.0)
                    np.testing.assert_array_equal(got, want)
            join(engine)

        on_ranks(size, program, shares_memory)

    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
    def test_adasum_takes_zeros_as_nothing(self, shares_memory: bool, dtype: str) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            if rank == 3:
                x = numbers(0, 1001, dtype)
                assert allreduce(engine, "x", x, op=ADASUM).tobytes() == x.tobytes()
            assert join(engine) == 3

        on_ranks(4, program, shares_memory)


class TestKnownRequests:
    def test_before_and_after(self) -> None:
        """A request known by its number stays known; operations with joined ranks are sent in full."""

        def program(rank: int, engine: _native.Engine) -> None:
            for early in (0, 1, 2):
                for _ in range(3):
                    assert allreduce(engine, "x", np.ones(5, np.float32)).tolist() == [3.0] * 5
                if rank != early:
                    for _ in range(2):
                        assert allreduce(engine, "x", np.ones(5, np.float32)).tolist() == [2.0] * 5
                    assert allreduce(engine, "new", np.ones(2, np.float32)).tolist() == [2.0] * 2
                join(engine)
            # All but the first "x", and each "new" of this rank.
            assert engine.counters()["cache_hits"] == 3 * 3 + 2 * 2 - 1

        on_ranks(3, program)

    def test_a_rank_with_other_parameters_is_refused_while_somebody_has_joined(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            if rank != 0:
                values = {1: "(1,)", 2: "(2,)"}
                with refused(Disagreement, "disagree", tensor="x", property="shape", values=values):
                    allreduce(engine, "x", np.ones(rank, np.float32))
                assert allreduce(engine, "x", np.ones(4, np.float32)).tolist() == [2.0] * 4
            join(engine)

        on_ranks(3, program)

    def test_a_number_that_was_forgotten_when_its_rank_joined(self) -> None:
        """Rank 1 announces "x" by a number, and joins, before it learns that rank 0 has forgotten the number.

        The response after a request with a very long name arrives in pieces, one in each step.
        """
        settings = _native.Settings()
        settings.cache_capacity = 1
        long_name = "y" * 150_000

        def program(rank: int, engine: _native.Engine) -> None:
            completed = stepper(engine, pause=0.01) if rank == 1 else engine.wait
            x, y = np.ones(3, np.float32), np.ones(3, np.float32)
            completed(submit(engine, "x", x))
            handles = [submit(engine, long_name, y)]
            if rank == 1:
                for _ in range(3):
                    engine.step(5.0)
                    time.sleep(0.1)  # rank 0 reads the available messages
            else:
                engine.wait(handles.pop())
            handles += [submit(engine, "x", x), engine.join()]
            if rank == 1:
                engine.step(5.0)
                assert not any(engine.poll(handle) for handle in handles)
                completed(handles[0])
                time.sleep(0.3)  # rank 0 asks again, gets no answer, and continues with "x"
                handles = handles[1:]
            for handle in handles:
                completed(handle)
            assert x.tolist() == [4.0] * 3 and y.tolist() == [2.0] * 3
            handle = submit(engine, "x", x) if rank == 0 else 0
            completed(engine.barrier("b"))
            if rank == 0:
                assert not ends_within(engine, handle, 0.2), "a request was heard twice"
                assert allreduce(engine, "go", y).tolist() == [4.0] * 3
                engine.wait(handle)
            else:
                completed(submit(engine, "go", y))
                completed(submit(engine, "x", x))

        on_ranks(2, program, settings=settings, stepped=[1])


class TestOrder:
    def test_who_comes_last_is_known_to_all(self) -> None:
        """The last rank sees the others' zeros in its result, so they have joined before it."""

        def program(rank: int, engine: _native.Engine) -> None:
            for last in (2, 0, 1, 1):
                if rank == last:
                    x = np.ones(3, np.float32)
                    while allreduce(engine, "alone", x)[0] != 1.0:
                        pass
                assert join(engine) == last

        on_ranks(3, program)

    def test_several_in_a_row(self) -> None:
        def program(rank: int, engine: _native.Engine) -> list[int]:
            return [join(engine) for _ in range(50)]

        results = on_ranks(4, program)
        assert all(result == results[0] for result in results)

    def test_operations_pending_on_the_rank_that_joins(self) -> None:
        """They wait for ranks that have not joined, and are done without the others."""

        def program(rank: int, engine: _native.Engine) -> None:
            xs = {name: np.full(4, rank, np.int32) for name in "abc"}
            handles = [submit(engine, name, xs[name]) for name in "abc"[: rank + 1]]
            join(engine)
            for handle in handles:
                engine.wait(handle)
            assert xs["a"].tolist() == [3] * 4
            if rank >= 1:
                assert xs["b"].tolist() == [3] * 4
            if rank == 2:
                assert xs["c"].tolist() == [2] * 4

        on_ranks(3, program)
        on_ranks(3, program, shares_memory=False)

    def test_operations_that_wait_only_for_the_rank_that_joins(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            xs = [np.full(3, i, np.int32) for i in range(20)]
            handles = [submit(engine, f"t{i}", x) for i, x in enumerate(xs)] if rank != 1 else []
            if rank == 1:
                time.sleep(0.2)  # the others have requested by now
            else:
                for handle in handles:
                    engine.wait(handle)
                assert [x.tolist() for x in xs] == [[2 * i] * 3 for i in range(20)]
            join(engine)

        on_ranks(3, program)

    def test_process_sets_are_not_concerned(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            both = add_set(engine, 0, 1)
            x = np.ones(3, np.float32)
            if rank < 2:
                for _ in range(3):
                    assert allreduce(engine, "x", x, both).tolist() == [2.0] * 3
            join(engine)
            assert allreduce(engine, "x", x).tolist() == [3.0] * 3

        on_ranks(3, program)


def calls(engine: _native.Engine) -> dict[str, Any]:
    """Operations that need a rank's data, or the rank itself."""
    x = np.ones(4, np.float32)
    return {
        "ALLGATHER": lambda: engine.allgather("x", [source_only(x)]),
        "BROADCAST": lambda: engine.broadcast("x", tensor(x), 0),
        "ALLTOALL": lambda: engine.alltoall("x", source_only(x), [4, 0, 0]),
        "REDUCESCATTER": lambda: engine.reducescatter("x", [tensor(x, x)], _native.Reduction()),
        "BARRIER": lambda: engine.barrier("x"),
        "ADD_PROCESS_SET": lambda: engine.add_process_set([0]),
    }


class TestRefusals:
    def test_other_operations_while_a_rank_has_joined(self) -> None:
        """The same operations work once all ranks have joined."""

        def program(rank: int, engine: _native.Engine) -> None:
            if rank != 1:
                for operation, call in calls(engine).items():
                    with refused(Disagreement, "other_after_join", operation=operation, ranks=(1,)):
                        engine.wait(call())
                assert allreduce(engine, "x", np.ones(2, np.float32)).tolist() == [2.0] * 2
            join(engine)
            for call in calls(engine).values():
                engine.wait(call())

        on_ranks(3, program)

    def test_several_that_have_joined_are_named(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            if rank == 1:
                while allreduce(engine, "alone", np.ones(1, np.float32))[0] != 1.0:
                    pass
                with refused(Disagreement, "other_after_join", tensor="x", ranks=(0, 2)):
                    engine.wait(engine.barrier("x"))
            assert join(engine) == 1

        on_ranks(3, program)

    def test_pending_ones_are_refused_when_a_rank_joins(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            if rank == 0:
                handle = engine.barrier("x")
                time.sleep(0.1)
                assert not engine.poll(handle)
                assert allreduce(engine, "go", np.ones(1, np.float32)).tolist() == [2.0]
                with refused(Disagreement, "other_after_join", tensor="x", ranks=(1,)):
                    engine.wait(handle)
            else:
                assert allreduce(engine, "go", np.ones(1, np.float32)).tolist() == [2.0]
            join(engine)

        on_ranks(2, program)

    def test_twice_at_a_time(self) -> None:
        with stepped_engines(1) as [engine]:
            engine.join()
            with refused(WrongArgument, "already_in_flight", tensor="join.noname"):
                engine.join()


def test_shutdown_while_a_rank_has_joined() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        if rank == 0:
            with refused(ShutDown, "shut_down"):
                join(engine)
        else:
            while allreduce(engine, "alone", np.ones(1, np.float32))[0] != 1.0:
                pass

    on_ranks(2, program)
