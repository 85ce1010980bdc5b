"""Process sets: their members, the order of operations, and which ranks wait for which."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import oracle
import pytest
from ranks import (
    AVERAGE,
    WORLDS,
    add_set,
    allreduce,
    ends_within,
    numbers,
    on_ranks,
    received,
    source_only,
    stepper,
    submit,
    tensor,
)
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Disagreement, HorovodInternalError, ShutDown, WrongArgument


class TestMembership:
    def test_ids_count_up_and_are_used_again(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            assert engine.process_sets() == {0: [0, 1, 2]}
            assert [add_set(engine, 0, 1), add_set(engine, 1, 2), add_set(engine, 2)] == [1, 2, 3]
            engine.wait(engine.remove_process_set(2))
            engine.wait(engine.remove_process_set(1))
            assert engine.process_sets() == {0: [0, 1, 2], 3: [2]}
            assert [add_set(engine, 0, 2), add_set(engine, 0), add_set(engine, 1)] == [1, 2, 4]
            assert engine.process_sets() == {0: [0, 1, 2], 1: [0, 2], 2: [0], 3: [2], 4: [1]}

        on_ranks(3, program)

    def test_a_new_set_under_an_old_id_knows_nothing_of_the_old_one(self) -> None:
        """Remembered requests and counters end with their set."""

        def program(rank: int, engine: _native.Engine) -> None:
            for members in ((0, 1), (0, 2), (1, 2)):
                process_set = add_set(engine, *members)
                assert process_set == 1
                if rank in members:
                    for _ in range(3):
                        got = allreduce(engine, "x", np.full(3, rank, np.int32), process_set)
                        assert got.tolist() == [sum(members)] * 3
                    counters = engine.counters(process_set)
                    assert (counters["operations"], counters["cache_hits"]) == (3, 2)
                engine.wait(engine.remove_process_set(process_set))

        on_ranks(3, program)

    def test_only_members_may_ask(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x = np.ones(3, np.float32)
            process_set = add_set(engine, 0, 2)
            if rank == 1:
                of_others = "process set 1 (ranks 0, 2)"
                with refused(WrongArgument, "not_a_member", tensor="x", ranks=(1,), set=of_others):
                    submit(engine, "x", x, process_set)
                with refused(WrongArgument, "root_outside", tensor="x", root=3, members="ranks 0, 1, 2"):
                    engine.broadcast("x", tensor(x), 3)
            else:
                assert allreduce(engine, "x", x, process_set).tolist() == [2.0] * 3
                with refused(WrongArgument, "root_outside", tensor="x", root=1, members="ranks 0, 2"):
                    engine.broadcast("x", tensor(x), 1, process_set)
            for call in (lambda: submit(engine, "x", x, 7), lambda: engine.counters(7)):
                with refused(WrongArgument, "process_set_unknown", set=7):
                    call()
            engine.wait(engine.barrier("end"))  # otherwise the first rank to leave would end the others' sets

        on_ranks(3, program)

    def test_ranks_disagree_about_sets(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            def differ(property_: str, first: str, others: str) -> Any:
                values = {0: first, 1: others, 2: others}
                return refused(
                    Disagreement, "disagree", tensor="process_set", property=property_, values=values
                )

            with differ("process set", "[0]", "[0, 1]"):
                add_set(engine, *([0] if rank == 0 else [0, 1]))
            assert [add_set(engine, 0, 1), add_set(engine, 1, 2)] == [1, 2]
            with differ("process set", "[1]", "[2]"):
                engine.wait(engine.remove_process_set(1 if rank == 0 else 2))
            with differ("operation", "REMOVE_PROCESS_SET", "ADD_PROCESS_SET"):
                engine.wait(engine.remove_process_set(1)) if rank == 0 else add_set(engine, 0)
            assert sorted(engine.process_sets()) == [0, 1, 2]

        on_ranks(3, program)


class TestOperations:
    @pytest.mark.parametrize("shares_memory", WORLDS)
    def test_a_set_of_all_ranks_beside_the_global_one(self, shares_memory: bool) -> None:
        """Both use the same shared memory, in turn."""

        def program(rank: int, engine: _native.Engine) -> None:
            xs = [numbers(r, 6000, np.float32) for r in range(3)]
            codec = _native.get_codec("bit8")
            for process_set in (0, add_set(engine, 0, 1, 2), 0):
                got = allreduce(engine, "x", xs[rank], process_set, codec=codec)
                np.testing.assert_array_equal(got, oracle.compressed_allreduce(xs, "bit8"))

        on_ranks(3, program, shares_memory)

    def test_every_operation_runs_among_the_members(self) -> None:
        """Results are in the order of the members, roots are ranks of the job, averages divide by the set."""
        sets = [(1, 3), (0, 2, 3), (2,)]

        def check(engine: _native.Engine, rank: int, process_set: int, members: tuple[int, ...]) -> None:
            size, place = len(members), members.index(rank)
            xs = [numbers(r, 6000, np.float32) for r in members]
            got = allreduce(engine, "sum", xs[place], process_set, op=AVERAGE)
            np.testing.assert_array_equal(got, oracle.allreduce(xs, AVERAGE))
            codec = _native.get_codec("bit8")
            got = allreduce(engine, "coded", xs[place], process_set, codec=codec)
            want = oracle.compressed_allreduce(xs, "bit8") if size > 1 else xs[0]
            np.testing.assert_array_equal(got, want)
            rows = np.full((rank + 1, 2), rank, np.int16)
            result = engine.wait(engine.allgather("rows", [source_only(rows)], process_set))
            assert result.sizes == [r + 1 for r in members]
            assert received(result, rows)[:, 0].tolist() == [r for r in members for _ in range(r + 1)]
            for root in members:
                x = np.full(3, rank, np.int64)
                engine.wait(engine.broadcast("root", tensor(x), root, process_set))
                assert x.tolist() == [root] * 3
            x = np.array([10 * rank + r for r in members], np.int32)
            result = engine.wait(engine.alltoall("all", source_only(x), [], process_set))
            assert received(result, x).tolist() == [10 * r + rank for r in members]
            x, out = np.arange(size, dtype=np.float64), np.empty(1)
            engine.wait(engine.reducescatter("own", [tensor(x, out)], _native.Reduction(), process_set))
            assert out.tolist() == [float(place * size)]
            engine.wait(engine.barrier("barrier", process_set))

        def program(rank: int, engine: _native.Engine) -> None:
            ids = [add_set(engine, *members) for members in sets]
            for process_set, members in zip(ids, sets, strict=True):
                if rank in members:
                    check(engine, rank, process_set, members)
            engine.wait(engine.barrier("end"))

        on_ranks(4, program)
        on_ranks(4, program, shares_memory=False)

    def test_a_disagreement_names_ranks_of_the_job_and_stays_in_the_set(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            process_set = add_set(engine, 1, 3)
            if rank in (1, 3):
                with refused(Disagreement, "disagree", ranks=(1, 3), values={1: "(1,)", 3: "(3,)"}):
                    allreduce(engine, "x", np.ones(rank, np.float32), process_set)
                assert engine.counters(process_set)["refusals"] == 1
            assert allreduce(engine, "x", np.ones(2, np.float32)).tolist() == [4.0] * 2
            assert engine.counters()["refusals"] == 0

        on_ranks(4, program)

    def test_one_name_may_be_in_flight_in_several_sets(self) -> None:
        """Each set has its own cached request for a name, and its own counters."""

        def program(rank: int, engine: _native.Engine) -> None:
            ids = [0, add_set(engine, 0, 1), add_set(engine, 0, 1, 2)]
            sizes = [4, 2, 3]
            before = engine.counters()
            for _ in range(5):
                arrays = {i: np.ones(10 + i, np.float32) for i, n in zip(ids, sizes, strict=True) if rank < n}
                handles = [submit(engine, "x", x, i) for i, x in arrays.items()]
                for handle in handles:
                    engine.wait(handle)
                assert all((x == sizes[i]).all() for i, x in arrays.items())
            for i in arrays:
                counters = engine.counters(i)
                earlier = before if i == 0 else dict.fromkeys(counters, 0)
                counted = {key: counters[key] - earlier[key] for key in counters}
                assert (counted["operations"], counted["buckets"], counted["cache_hits"]) == (5, 5, 4)
                assert counted["tensor_bytes"] == 5 * 4 * (10 + i)
                assert counted["wire_bytes"] > 0
            engine.wait(engine.barrier("end"))

        on_ranks(4, program)

    @pytest.mark.parametrize("capacity", [0, 1])
    def test_each_set_has_a_cache_of_its_own(self, capacity: int) -> None:
        settings = _native.Settings()
        settings.cache_capacity = capacity

        def program(rank: int, engine: _native.Engine) -> None:
            ids = [add_set(engine, 0, 1), add_set(engine, 1, 2)]
            mine = ids[max(rank - 1, 0) : rank + 1]
            for step in range(20):
                for process_set in mine:
                    got = allreduce(engine, "x", np.full(3, step, np.int32), process_set)
                    assert got.tolist() == [2 * step] * 3
            assert all(engine.counters(i)["cache_hits"] == 19 * capacity for i in mine)
            engine.wait(engine.barrier("end"))

        on_ranks(3, program, settings=settings)


class TestRemoval:
    def test_what_is_pending_there_fails_and_nothing_else(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            first, second = add_set(engine, 0, 1), add_set(engine, 0, 1)
            xs = [np.ones(3, np.float32) for _ in range(3)]
            if rank == 0:
                doomed = [submit(engine, "x", xs[0], first), submit(engine, "y", xs[1], first)]
                spared = submit(engine, "x", xs[2], second)
            engine.wait(engine.remove_process_set(first))
            if rank == 0:
                for handle, name in zip(doomed, "xy", strict=True):
                    gone = "process set 1 (ranks 0, 1)"
                    with refused(HorovodInternalError, "set_removed", tensor=name, set=gone):
                        engine.wait(handle)
                assert not engine.poll(spared)
                engine.wait(engine.barrier("rank 0 has looked"))
                engine.wait(spared)
                assert xs[2].tolist() == [2.0] * 3 and xs[0].tolist() == [1.0] * 3
            else:
                engine.wait(engine.barrier("rank 0 has looked"))
            if rank == 1:
                assert allreduce(engine, "x", xs[0], second).tolist() == [2.0] * 3
            for call in (lambda: submit(engine, "x", xs[0], first), lambda: engine.counters(first)):
                with refused(WrongArgument, "process_set_unknown", set=1):
                    call()
            engine.wait(engine.barrier("end"))

        on_ranks(3, program)

    def test_sets_come_and_go_among_work(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for step in range(30):
                pending = np.full(4, rank, np.int32)
                handle = submit(engine, "global", pending)
                members = [r for r in range(3) if r != step % 3]
                process_set = add_set(engine, *members)
                if rank in members:
                    got = allreduce(engine, "x", np.full(2, rank, np.int32), process_set)
                    assert got.tolist() == [sum(members)] * 2
                engine.wait(engine.remove_process_set(process_set))
                engine.wait(handle)
                assert pending.tolist() == [3] * 4

        on_ranks(3, program)


class TestIndependence:
    def test_overlapping_sets_in_another_order_on_each_rank(self) -> None:
        """No two ranks wait for each other: all operations of a job have one order."""
        sets = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2), (1, 3), (0, 1, 2), (1, 2, 3), (0, 2, 3)]

        def start(
            engine: _native.Engine, rank: int, process_set: int, members: tuple[int, ...], step: int
        ) -> tuple[int, Callable[[_native.Result], bool], Any]:
            name, count = f"t{step % 3}", [3, 40_000][step % 2]
            if process_set % 2:
                x = np.full(count, rank + step, np.int32)
                want = sum(members) + step * len(members)
                return submit(engine, name, x, process_set), lambda _: bool((x == want).all()), x
            x = np.full((rank + 1, count // 3), rank, np.int32)
            want = [r for r in members for _ in range(r + 1)]
            handle = engine.allgather(name, [source_only(x)], process_set)
            return handle, lambda result: received(result, x)[:, -1].tolist() == want, x

        def program(rank: int, engine: _native.Engine) -> None:
            ids = {add_set(engine, *members): members for members in sets}
            mine = [(i, members) for i, members in ids.items() if rank in members]
            order = random.Random(rank)
            for step in range(40):
                order.shuffle(mine)
                started = [start(engine, rank, i, members, step) for i, members in mine]
                order.shuffle(started)
                for handle, is_right, _kept_alive in started:
                    assert is_right(engine.wait(handle))
            engine.wait(engine.barrier("end"))

        on_ranks(4, program)
        on_ranks(4, program, shares_memory=False)

    def test_sets_go_on_while_one_stalls(self) -> None:
        done = threading.Event()

        def program(rank: int, engine: _native.Engine) -> None:
            stalled, left, right = (add_set(engine, *m) for m in ((0, 3), (0, 1), (2, 3)))
            x = np.ones(3, np.float32)
            handle = submit(engine, "late", x, stalled) if rank == 0 else 0
            for _ in range(50):
                assert allreduce(engine, "x", x * rank, left if rank < 2 else right)[0] in (1.0, 5.0)
            engine.wait(engine.barrier("all"))
            if rank == 0:
                assert not engine.poll(handle)
                done.set()
                engine.wait(handle)
            if rank == 3:
                assert done.wait(20)
                assert allreduce(engine, "late", x, stalled).tolist() == [2.0] * 3
            engine.wait(engine.barrier("end"))

        on_ranks(4, program)

    def test_negotiation_goes_on_while_rank_0_is_busy_in_a_set(self) -> None:
        """Rank 3 is late in a collective in which rank 0 waits for it; ranks 1 and 2 need rank 0's response.

        A set that all have requested exists on ranks 1 and 2 before ranks 0 and 3 handle it.
        """
        others_have_asked = [threading.Event(), threading.Event()]

        def others(rank: int, engine: _native.Engine, quick: int) -> None:
            try:
                for step in range(20):
                    handle = submit(engine, "x", np.ones(step + 1, np.float32), quick)
                    assert ends_within(engine, handle), "rank 0 does not answer"
                    engine.wait(handle)
                handle = engine.add_process_set([1, 2, 3])
                assert ends_within(engine, handle), "rank 0 does not answer"
                new = engine.wait(handle).sizes[0]
                x = np.ones(3, np.float32)
                handle = submit(engine, "new", x, new)
                assert not ends_within(engine, handle, 0.2)  # rank 3 has not asked
            finally:
                others_have_asked[rank - 1].set()
            assert ends_within(engine, handle), "an early request was lost"
            assert x.tolist() == [3.0] * 3

        def program(rank: int, engine: _native.Engine) -> None:
            completed = stepper(engine) if rank == 3 else engine.wait
            slow = completed(engine.add_process_set([0, 3])).sizes[0]
            quick = completed(engine.add_process_set([1, 2])).sizes[0]
            if rank in (1, 2):
                others(rank, engine, quick)
            else:
                x = np.ones(300_000, np.float32)
                handles = [submit(engine, "slow", x, slow), engine.add_process_set([1, 2, 3])]
                if rank == 3:
                    engine.step()
                    assert all(event.wait(40) for event in others_have_asked)
                new = [completed(handle) for handle in handles][1].sizes[0]
                assert (x == 2.0).all()
                if rank == 3:
                    completed(submit(engine, "new", np.ones(3, np.float32), new))
            completed(engine.barrier("end"))

        on_ranks(4, program, stepped=[3])


class TestShutdown:
    def test_what_is_pending_in_any_set_fails(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            sets = [0, add_set(engine, 0, 1), add_set(engine, 1, 2)]
            engine.wait(engine.barrier("b"))
            if rank == 2:
                return  # on_ranks shuts its engine down
            x = np.ones(3, np.float32)
            with refused(ShutDown, "shut_down"):
                handles = [submit(engine, f"{rank}", x, i) for i in sets[: 2 + rank]]
                for handle in handles:
                    with refused(ShutDown, "shut_down"):
                        engine.wait(handle)
                submit(engine, "later", x, 1)
            assert not engine.has_failed

        on_ranks(3, program)
