"""Execution of responses, and the results for callers, without an engine: tests make the responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from native_testing import testing
from numpy.typing import NDArray
from ranks import NUMBERS, received, source_only, tensor
from refusals import refused

from horovod import _native
from horovod.common.exceptions import HorovodInternalError, LostRank, TensorChanged, WrongArgument

Floats = NDArray[np.float32]
Response, Submission = testing.Response, testing.Submission


class Caller:
    """The caller of rank 0, in a world whose other ranks do nothing."""

    def __init__(self, size: int = 1, **settings: Any) -> None:
        given = _native.Settings()
        for name, value in settings.items():
            setattr(given, name, value)
        self.worlds = _native.local_worlds(size)
        self.rank = testing.Rank(self.worlds[0], given)
        self.execution = testing.Execution(self.rank)
        self._kept: list[object] = []

    def allreduce(
        self, name: str, x: Floats, *, process_set: int = 0, witness: int = 0
    ) -> tuple[int, Floats]:
        """Request an allreduce, which is agreed on at once; return its handle and the result's array."""
        out = np.zeros_like(x)
        given = _native.Tensor(x.ctypes.data, out.ctypes.data, [x.size], NUMBERS[x.dtype], witness=witness)
        self._kept += [x, out]
        handle = self.execution.ask(Submission.allreduce(name, [given], _native.Reduction()), process_set)
        return handle, out

    def carry_out(self, kind: str, *names: str, **more: Any) -> None:
        self.execution.carry_out(Response(kind, list(names), **more))

    def done(self, *handles: int) -> list[bool]:
        return [self.rank.is_done(handle) for handle in handles]

    def run(self, submission: Any) -> Any:
        """Request an allreduce, execute it alone, and return its result."""
        handle = self.execution.ask(submission)
        self.carry_out("run", submission.name)
        return self.rank.result(handle)


@pytest.fixture
def caller() -> Caller:
    return Caller()


def ones(value: float = 1.0) -> Floats:
    return np.full(3, value, np.float32)


class TestResults:
    def test_they_come_in_the_order_of_responses(self, caller: Caller) -> None:
        (first, a), (second, b) = caller.allreduce("a", ones(1)), caller.allreduce("b", ones(2))
        assert caller.rank.result(first) is None
        caller.carry_out("run", "b")
        assert caller.done(first, second) == [False, True] and not a.any() and b.tolist() == [2, 2, 2]
        caller.carry_out("run", "a")
        assert caller.done(first, second) == [True, True] and a.tolist() == [1, 1, 1]
        assert caller.rank.result(first) is not None

    def test_what_runs_together_is_done_together(self, caller: Caller) -> None:
        asked = [caller.allreduce(name, ones(value)) for value, name in enumerate("abc")]
        caller.carry_out("run", "c", "a")
        assert caller.done(*(handle for handle, _ in asked)) == [True, False, True]
        assert [out[0] for _, out in asked] == [0, 0, 2]

    def test_what_the_core_allocates_is_in_the_result(self, caller: Caller) -> None:
        x = np.arange(6, dtype=np.int32).reshape(3, 2)
        handle = caller.execution.ask(Submission.allgather("g", [source_only(x)]))
        caller.carry_out("run", "g", rows=[3])
        result = caller.rank.result(handle)
        assert result.sizes == [3] and (received(result, x) == x).all()

    def test_a_name_is_free_when_its_operation_is_done(self, caller: Caller) -> None:
        handle, _ = caller.allreduce("a", ones())
        with refused(WrongArgument, "already_in_flight"):
            caller.allreduce("a", ones())
        caller.carry_out("run", "a")
        again, _ = caller.allreduce("a", ones())
        assert caller.done(handle, again) == [True, False]

    def test_a_decision_about_missing_gradients(self, caller: Caller) -> None:
        handle = caller.execution.ask(Submission.missing("q", ["g", "h"], [False, True]))
        caller.carry_out("decided", "q", rows=[2, 1])
        assert caller.rank.result(handle).sizes == [2, 1]

    def test_a_caller_that_is_released_gets_its_result_later(self, caller: Caller) -> None:
        handle, out = caller.allreduce("a", ones())
        caller.carry_out("release", "a")
        assert caller.rank.is_released(handle) and not caller.rank.is_released(handle)
        caller.carry_out("release", "nobody asked for it")
        caller.carry_out("run", "a")
        assert caller.done(handle) == [True] and out.any()


class TestRefusal:
    def test_its_callers_hear_why_and_all_goes_on(self, caller: Caller) -> None:
        (refused_one, out), (other, _) = caller.allreduce("a", ones()), caller.allreduce("b", ones())
        caller.carry_out("refuse", "a", "not asked for here", why="shapes differ")
        with refused(HorovodInternalError, "unexpected", why="shapes differ"):
            caller.rank.result(refused_one)
        assert not out.any() and caller.done(other) == [False] and caller.execution.failures == 0
        again, out = caller.allreduce("a", ones())
        caller.carry_out("run", "a", "b")
        assert caller.done(again, other) == [True, True] and out.any()


class TestFailure:
    def fails(self, caller: Caller, act: Callable[[], None], handles: Sequence[int], code: str) -> Any:
        """The error that ends the job; waiting and later callers get it."""
        with pytest.raises(HorovodInternalError) as caught:
            act()
        assert caught.value.code == code
        submissions = testing.Submissions(caller.rank)
        for hear in (submissions.require_open, *(partial(caller.rank.result, each) for each in handles)):
            with pytest.raises(type(caught.value)) as again:
                hear()
            assert str(again.value) == str(caught.value)
        return caught.value

    def test_of_an_operation_is_said_with_its_cause(self) -> None:
        caller = Caller(2)
        asked = [caller.allreduce(name, ones())[0] for name in "abc"]
        caller.worlds[1].abandon()
        error = self.fails(caller, lambda: caller.carry_out("run", "a", "b"), asked[:2], "operation_failed")
        assert type(error) is LostRank and error.ranks == (1,) and error.tensor == "a"
        assert caller.execution.failures == 1
        assert caller.done(asked[2]) == [False], "what it did not run is failed by who ends the job"
        caller.execution.stop("the end")
        with refused(HorovodInternalError, "unexpected", why="the end"):
            caller.rank.result(asked[2])

    def test_what_other_ranks_say_explains_it_better(self) -> None:
        caller = Caller(2)
        handle, _ = caller.allreduce("a", ones())
        caller.worlds[1].abandon()
        caller.execution.heard = "rank 2 has never asked for 'a'"
        error = self.fails(caller, lambda: caller.carry_out("run", "a"), [handle], "unexpected")
        assert error.facts["why"] == "rank 2 has never asked for 'a'"

    def test_of_this_rank_it_is_its_own_whatever_others_say(self, caller: Caller) -> None:
        word = np.array([17], np.uint64)  # the word in which a framework keeps the memory's address
        handle, _ = caller.allreduce("a", ones(), witness=word.ctypes.data)
        word[0] = 18
        caller.execution.heard = "the others have lost rank 0"
        error = self.fails(caller, lambda: caller.carry_out("run", "a"), [handle], "operation_failed")
        assert type(error) is TensorChanged and error.tensor == "a"

    def test_a_coordinator_that_names_what_nobody_asked_for(self, caller: Caller) -> None:
        handle, _ = caller.allreduce("a", ones())
        wrong = Response("run", ["a", "b"])
        self.fails(caller, lambda: caller.execution.carry_out(wrong), [handle], "coordinator_wrong")
        assert caller.execution.failures == 0, "nothing has begun"

    @pytest.mark.parametrize("elastic", [True, False])
    def test_the_job_does_not_end_where_another_follows(self, elastic: bool) -> None:
        caller = Caller(2, elastic=elastic)
        handle, _ = caller.allreduce("a", ones())
        caller.worlds[1].abandon()
        error = self.fails(caller, lambda: caller.carry_out("run", "a"), [handle], "operation_failed")
        assert ("cannot go on" in str(error)) != elastic


class TestProcessSets:
    def test_one_is_added_and_named(self, caller: Caller) -> None:
        result = caller.run(Submission.add_process_set([0]))
        assert result.sizes == [1] and caller.execution.sets_added == 1
        handle, out = caller.allreduce("a", ones(), process_set=1)
        caller.carry_out("run", "a", set_serial=1)
        assert caller.done(handle) == [True] and out.any()

    def test_what_is_pending_in_one_that_is_removed_fails(self, caller: Caller) -> None:
        caller.run(Submission.add_process_set([0]))
        announced, _ = caller.allreduce("a", ones(), process_set=1)
        gathered, _ = testing.Submissions(caller.rank).add(
            Submission.allreduce("b", [tensor(ones())], _native.Reduction()), 1
        )
        other, _ = caller.allreduce("a", ones())
        handle = caller.execution.ask(Submission.remove_process_set(1))
        caller.carry_out("run", "process_set")
        for orphan, name in ((announced, "a"), (gathered, "b")):
            with refused(HorovodInternalError, "set_removed", tensor=name):
                caller.rank.result(orphan)
        assert caller.done(handle, other) == [True, False]


def test_ranks_are_tuned_between_two_operations(caller: Caller) -> None:
    assert caller.execution.tuned == ""
    lines = "HOROVOD_CYCLE_TIME=7"
    result = caller.run(Submission.tune("tune", lines))
    assert caller.execution.tuned == lines and bytes(np.from_dlpack(result.buffer())) == lines.encode()
    submissions = testing.Submissions(caller.rank)
    submissions.add(Submission.allreduce("a", [tensor(ones())], _native.Reduction()))
    assert submissions.due == 7.0


def test_the_end_fails_all_that_is_pending(caller: Caller) -> None:
    announced, _ = caller.allreduce("a", ones())
    done, _ = caller.allreduce("b", ones())
    caller.carry_out("run", "b")
    submissions = testing.Submissions(caller.rank)
    gathered, _ = submissions.add(Submission.allreduce("c", [tensor(ones())], _native.Reduction()))
    caller.execution.stop("the end")
    for handle in (announced, gathered):
        with refused(HorovodInternalError, "unexpected", why="the end"):
            caller.rank.result(handle)
    assert submissions.are_closed and caller.rank.result(done) is not None
