"""The schedule: gathering, agreement, cache, fusion and errors; ranks are stepped or are threads."""

from __future__ import annotations

import random
import resource
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import AVERAGE, allreduce, on_ranks, source_only, stepped_engines, submit, tensor
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Disagreement, ShutDown, WrongArgument

BIT8, SMALL_BIT8 = _native.get_codec("bit8"), _native.get_codec("bit8", 32)


class TestGathering:
    """Limits to the byte and the millisecond are in test_gathering.py."""

    def test_a_barrier_is_not_kept_waiting_and_what_follows_is_gathered_again(self) -> None:
        with stepped_engines(1) as [engine]:
            barrier = engine.barrier("barrier")
            assert engine.step() and engine.poll(barrier)
            handle = submit(engine, "a", np.ones(3, np.float32))
            assert not engine.step()
            assert not engine.poll(handle)
            assert engine.step(2.0) and engine.poll(handle)

    @pytest.mark.parametrize("wait", [_native.Engine.wait, _native.Engine.wait_or_yield])
    def test_what_somebody_waits_for_is_not_gathered(self, wait: Callable[..., object]) -> None:
        settings = _native.Settings()
        settings.cycle_time = 1e6  # ms: longer than the test's time limit

        def program(rank: int, engine: _native.Engine) -> int:
            x = np.ones(3, np.float32)
            for _ in range(3):
                wait(engine, submit(engine, "a", x))
            return engine.counters()["announcements"]

        assert on_ranks(1, program, settings=settings) == [3]


class TestCache:
    def test_a_repeated_request_is_announced_by_number(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for _ in range(10):
                allreduce(engine, "x", np.ones(5, np.float32))
            assert engine.counters()["cache_hits"] == 9

        on_ranks(3, program)

    def test_new_parameters_under_an_old_name_are_negotiated_again(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for count in (5, 5, 6, 6, 5):
                got = allreduce(engine, "x", np.ones(count, np.float32))
                assert got.tolist() == [2.0] * count
            assert engine.counters()["cache_hits"] == 2

        on_ranks(2, program)

    def test_parameters_that_change_on_one_rank_only_are_refused(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            allreduce(engine, "x", np.ones(5, np.float32))
            with refused(Disagreement, "disagree", tensor="x", values={0: "(5,)", 1: "(6,)"}):
                allreduce(engine, "x", np.ones(5 + rank, np.float32))
            assert allreduce(engine, "x", np.ones(5, np.float32)).tolist() == [2.0] * 5

        on_ranks(2, program)

    @pytest.mark.parametrize("capacity", [0, 1, 3])
    def test_a_small_cache_forgets_and_still_agrees(self, capacity: int) -> None:
        """More names than capacity, in flight together and in another order on each rank."""
        settings = _native.Settings()
        settings.cache_capacity = capacity

        def program(rank: int, engine: _native.Engine) -> None:
            order = random.Random(rank)
            for step in range(60):
                names = [f"t{i}" for i in range(6)]
                order.shuffle(names)
                arrays = {name: np.full(3, step + int(name[1:]), np.int32) for name in names}
                handles = [submit(engine, name, arrays[name]) for name in names]
                for handle in handles:
                    engine.wait(handle)
                for name in names:
                    assert arrays[name].tolist() == [3 * (step + int(name[1:]))] * 3

        on_ranks(3, program, settings=settings)

    def test_an_allgather_whose_rows_change_is_right(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for rows in ([1, 1], [1, 1], [1, 4], [2, 4], [2, 4]):
                x = np.full(rows[rank], rank, np.float32)
                result = engine.wait(engine.allgather("g", [source_only(x)]))
                assert result.sizes == rows

        on_ranks(2, program)


class TestDisagreement:
    """Both ranks get an error that names tensor, ranks and values, and the next operation works."""

    @pytest.mark.parametrize(
        ("property_", "values", "one", "other"),
        [
            ("shape", "(3,) (4,)", {"shape": (3,)}, {"shape": (4,)}),
            ("shape", "(2,3) (3,2)", {"shape": (2, 3)}, {"shape": (3, 2)}),
            ("dtype", "float32 float64", {}, {"dtype": np.float64}),
            ("reduce op", "Sum Average", {}, {"op": AVERAGE}),
            ("postscale_factor", "1 1.0000000000000002", {}, {"postscale": 1.0000000000000002}),
            ("postscale_factor", "1 2", {}, {"postscale": 2.0}),
            ("prescale_factor", "1 0.5", {}, {"prescale": 0.5}),
            ("compression codec", "none bit8/128", {}, {"codec": BIT8}),
            ("compression codec", "bit8/128 bit8/32", {"codec": BIT8}, {"codec": SMALL_BIT8}),
        ],
    )
    def test_of_one_tensor(
        self, property_: str, values: str, one: dict[str, Any], other: dict[str, Any]
    ) -> None:
        def program(rank: int, engine: _native.Engine) -> dict[str, object]:
            request = dict((one, other)[rank])
            x = np.ones(request.pop("shape", (3,)), request.pop("dtype", np.float32))
            wanted = dict(enumerate(text.replace(",", ", ").replace(", )", ",)") for text in values.split()))
            with refused(
                Disagreement, "disagree", tensor="grad", ranks=(0, 1), property=property_, values=wanted
            ) as caught:
                engine.wait(submit(engine, "grad", x, **request))
            assert allreduce(engine, "grad", np.ones(2, np.float32)).tolist() == [2.0, 2.0]
            assert engine.counters()["refusals"] == 1
            return caught.value.facts

        first, second = on_ranks(2, program)
        assert first == second

    def test_group_size(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            members = [np.ones(2, np.float32) for _ in range(2 + rank)]
            number = "number of tensors in the group"
            with refused(Disagreement, "disagree", tensor="g", property=number, values={0: "2", 1: "3"}):
                engine.wait(engine.allreduce("g", [tensor(x) for x in members], _native.Reduction()))

        on_ranks(2, program)

    def test_operation_and_root_and_dimensions(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x, y = np.ones(3, np.float32), np.ones((2, 3 + rank), np.float32)
            values = {0: "ALLREDUCE", 1: "BROADCAST"}
            with refused(Disagreement, "disagree", tensor="x", property="operation", values=values):
                engine.wait(submit(engine, "x", x) if rank == 0 else engine.broadcast("x", tensor(x), 0))
            with refused(Disagreement, "disagree", property="root rank", values={0: "0", 1: "1"}):
                engine.wait(engine.broadcast("x", tensor(x), rank))
            values = {0: "(3,)", 1: "(4,)"}
            with refused(Disagreement, "disagree", property="dimensions after the first", values=values):
                engine.wait(engine.allgather("y", [_native.Tensor(y.ctypes.data, 0, list(y.shape), 6)]))
            with refused(Disagreement, "no_dimension", tensor="z", verb="gather", call="allgather"):
                engine.wait(engine.allgather("z", [_native.Tensor(x.ctypes.data, 0, [], 6)]))
            engine.wait(engine.barrier("b"))

        on_ranks(2, program)

    def test_ranks_of_one_opinion_are_named_together(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            values = dict.fromkeys(range(4), "(3,)") | {2: "(9,)"}
            with refused(Disagreement, "disagree", ranks=(0, 1, 2, 3), values=values) as caught:
                engine.wait(submit(engine, "x", np.ones(9 if rank == 2 else 3, np.float32)))
            assert "ranks 0, 1, 3: (3,); rank 2: (9,)" in str(caught.value)

        on_ranks(4, program)


class TestSubmission:
    def test_a_name_in_flight_is_refused_on_that_rank_and_loses_nothing(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x, y = np.ones(3, np.float32), np.ones(3, np.float32)
            if rank == 0:
                handle = submit(engine, "x", x)
                with refused(WrongArgument, "already_in_flight", tensor="x", ranks=(0,)):
                    submit(engine, "x", y)
                engine.wait(engine.barrier("b"))
            else:
                engine.wait(engine.barrier("b"))
                handle = submit(engine, "x", x)
            engine.wait(handle)
            assert x.tolist() == [2.0] * 3
            assert allreduce(engine, "x", y).tolist() == [2.0] * 3

        on_ranks(2, program)

    def test_what_cannot_be_done_is_refused_before_anything_is_sent(self) -> None:
        with stepped_engines(1) as [engine]:
            x, whole = np.ones(3, np.float32), np.ones(3, np.int32)
            with refused(WrongArgument, "root_outside", tensor="x", root=1, members="rank 0"):
                engine.broadcast("x", tensor(x), 1)
            with refused(WrongArgument, "codec_of_integers", tensor="x", dtype="int32"):
                submit(engine, "x", whole, codec=BIT8)
            with refused(WrongArgument, "codec_of_other_op", tensor="x", codec="bit8/128", op="Max"):
                submit(engine, "x", x, op=4, codec=BIT8)
            with refused(WrongArgument, "adasum_dtype", tensor="x", dtype="int32"):
                submit(engine, "x", whole, op=2)
            with refused(WrongArgument, "factors_not_finite", tensor="x"):
                submit(engine, "x", x, prescale=float("nan"))
            with refused(WrongArgument, "group_empty", tensor="x"):
                engine.allreduce("x", [], _native.Reduction())
            with refused(WrongArgument, "dtype_unknown", value=77):
                _native.Tensor(0, 0, [1], 77)

    @pytest.mark.parametrize("call", [_native.Engine.poll, _native.Engine.wait])
    def test_unknown_handles(self, call: Callable[..., object]) -> None:
        with stepped_engines(1) as [engine], refused(WrongArgument, "handle_unknown", handle=99):
            call(engine, 99)


class TestShutdown:
    def test_pending_operations_fail_and_later_ones_are_refused(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            if rank == 1:
                return  # on_ranks shuts its engine down
            with refused(ShutDown, "shut_down"):
                engine.wait(submit(engine, "x", np.ones(3, np.float32)))
            with refused(ShutDown, "shut_down"):
                submit(engine, "y", np.ones(3, np.float32))

        on_ranks(2, program)

    def test_what_all_ranks_asked_for_before_is_still_done(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            arrays = [np.ones(100, np.float32) for _ in range(50)]
            handles = [submit(engine, f"t{i}", x) for i, x in enumerate(arrays)]
            engine.wait(handles[-1])
            for handle in handles:
                if handle != handles[-1]:
                    engine.wait(handle)
            assert all(x.tolist() == [4.0] * 100 for x in arrays)

        on_ranks(4, program)


def resident_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def test_ten_thousand_names_in_another_order_on_each_rank() -> None:
    """Right results, no deadlock, and no growth of memory.

    Queues are longest if one rank requests everything before the other, and the allocator keeps their memory.
    Each rank does so at the beginning, as a busy machine could otherwise cause it later.
    """
    is_sanitized = "sanitized" in _native.__file__  # a round takes over a second; freed memory is kept
    deep, rounds = 4, 4 if is_sanitized else 14
    meeting = threading.Barrier(2)

    def program(rank: int, engine: _native.Engine) -> list[int]:
        order, resident = random.Random(rank), []
        for number in range(rounds):
            names = list(range(10_000))
            order.shuffle(names)
            arrays = np.arange(10_000, dtype=np.int64)
            if number < deep and number % 2 == rank:
                meeting.wait()
            handles = [submit(engine, f"t{i}", arrays[i : i + 1]) for i in names]
            if number < deep and number % 2 != rank:
                meeting.wait()
            for handle in handles:
                engine.wait(handle)
            np.testing.assert_array_equal(arrays, 2 * np.arange(10_000))
            meeting.wait()
            resident.append(resident_kib())
        return resident

    settings = _native.Settings()
    settings.cache_capacity = 1000
    [resident, _] = on_ranks(2, program, settings=settings)
    # Of the 200,000 operations of the two ranks afterwards, none may keep 42 bytes.
    assert is_sanitized or resident[-1] - resident[deep - 1] < 8192, f"resident KiB by round: {resident}"


def test_out_of_order_operations_do_not_block_each_other() -> None:
    """An operation that one rank has not requested does not delay a barrier that all have requested."""

    def program(rank: int, engine: _native.Engine) -> None:
        x = np.ones(3, np.float32)
        if rank == 0:
            handle = submit(engine, "late", x)
            engine.wait(engine.barrier("b"))
            assert not engine.poll(handle)
            engine.wait(engine.barrier("c"))
        else:
            engine.wait(engine.barrier("b"))
            engine.wait(engine.barrier("c"))
            handle = submit(engine, "late", x)
        engine.wait(handle)

    on_ranks(3, program)
