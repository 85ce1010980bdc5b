"""Submissions of callers before they are announced, without an engine; the clock is an argument."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from native_testing import testing
from refusals import refused

from horovod import _native
from horovod.common.exceptions import HorovodInternalError, WrongArgument

THRESHOLD = 1000  # bytes
CYCLE = 8.0  # milliseconds


def settings(**given: Any) -> _native.Settings:
    made = _native.Settings()
    made.fusion_threshold, made.cycle_time = THRESHOLD, CYCLE
    for name, value in given.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def rank() -> Any:
    (world,) = _native.local_worlds(1)
    return testing.Rank(world, settings())


@pytest.fixture
def submissions(rank: Any) -> Any:
    return testing.Submissions(rank)


def allreduce(name: str, size: int = 1) -> Any:
    """An allreduce of `size` bytes, which are never read."""
    return testing.Submission.allreduce(name, [_native.Tensor(0, 0, [size], 0)], _native.Reduction())


def taken(submissions: Any, now: float, at_once: bool = False) -> list[str]:
    return [submission.name for _, submission in submissions.take_due(now, at_once)]


class TestNames:
    def test_one_in_flight_is_refused_and_nothing_of_it_stays(self, submissions: Any) -> None:
        first, _ = submissions.add(allreduce("a"))
        with refused(WrongArgument, "already_in_flight", tensor="a", ranks=(0,)):
            submissions.add(allreduce("a"))
        other, _ = submissions.add(allreduce("b"))
        assert first != other and taken(submissions, CYCLE) == ["a", "b"]

    def test_it_is_in_flight_after_it_is_announced_until_it_is_released(self, submissions: Any) -> None:
        submissions.add(allreduce("a"))
        ((_, announced),) = submissions.take_due(CYCLE)
        with refused(WrongArgument, "already_in_flight"):
            submissions.add(allreduce("a"))
        submissions.release_names([announced])
        submissions.add(allreduce("a"))

    def test_each_process_set_has_its_own(self, rank: Any, submissions: Any) -> None:
        other = rank.add_process_set([0])
        submissions.add(allreduce("a"))
        submissions.add(allreduce("a"), other)
        assert [process_set for process_set, _ in submissions.take_due(CYCLE)] == [0, other]


class TestGathering:
    def test_the_thread_is_woken_by_the_first_and_by_what_fills_a_bucket(self, submissions: Any) -> None:
        sizes = [400, 599, 1, 1]
        woken = [submissions.add(allreduce(f"t{i}", size))[1] for i, size in enumerate(sizes)]
        assert woken == [True, False, True, True]
        assert taken(submissions, 0.0) == ["t0", "t1", "t2", "t3"], "in the order of submission"
        assert submissions.is_empty and submissions.due is None
        submissions.add(allreduce("next", THRESHOLD - 1), 0, 1.0)
        assert taken(submissions, 1.0) == [], "each gathering counts from nothing"

    @pytest.mark.parametrize(
        ("times", "due"),
        [
            ([0], 8),
            ([0, 5], 8),  # a cycle after the first
            ([0, 7], 9),  # a quarter cycle after the last, while they come in quick succession
            ([0, 7, 8.5, 20], 22),
            ([0, 31], 32),  # but at most four cycles after the first
        ],
    )
    def test_when_they_are_due(self, times: list[float], due: float, submissions: Any) -> None:
        begin = 1000.0
        for number, time in enumerate(times):
            submissions.add(allreduce(f"t{number}"), 0, begin + time)
        assert submissions.due == begin + due
        assert taken(submissions, begin + due - 0.001) == []
        assert len(taken(submissions, begin + due)) == len(times)

    def test_while_another_rank_is_late_the_next_announcement_waits_longer(self, submissions: Any) -> None:
        submissions.add(allreduce("a"))
        assert taken(submissions, CYCLE) == ["a"]
        submissions.add(allreduce("b"), 0, 10.0)
        assert submissions.due == 10.0 + 20 * CYCLE
        submissions.note_answer()
        assert submissions.due == 10.0 + CYCLE

    def test_what_nobody_goes_on_without_is_due_at_once(self, submissions: Any) -> None:
        submissions.add(allreduce("a"))
        assert taken(submissions, 0.0) == []
        _, must_wake = submissions.add(testing.Submission.barrier("barrier"))
        assert must_wake and taken(submissions, 0.0) == ["a", "barrier"]

    def test_a_caller_that_waits_hurries_what_is_there(self, submissions: Any) -> None:
        submissions.add(allreduce("a"))
        assert submissions.hurry() and not submissions.hurry(), "the second need not wake the thread"
        assert taken(submissions, 0.0) == ["a"]
        submissions.add(allreduce("b"))
        assert taken(submissions, 0.0) == []

    def test_tuned_in_the_middle(self, submissions: Any) -> None:
        submissions.add(allreduce("a", 10))
        submissions.tune(settings(cycle_time=2.0))
        assert submissions.due == 2.0
        submissions.tune(settings(fusion_threshold=10))
        assert taken(submissions, 0.0) == ["a"]


class TestHolding:
    def test_nothing_is_due_until_all_have_let_go(self, submissions: Any) -> None:
        submissions.hold()
        submissions.add(allreduce("a", 2 * THRESHOLD))
        submissions.hold()
        assert submissions.due is None and taken(submissions, 100 * CYCLE) == []
        assert not submissions.let_go()
        assert taken(submissions, 100 * CYCLE) == []
        assert submissions.let_go(), "the thread is to be woken"
        assert taken(submissions, 0.0) == ["a"]

    def test_there_is_nothing_to_wake_for(self, submissions: Any) -> None:
        submissions.hold()
        assert not submissions.let_go()

    def test_what_is_added_meanwhile_is_one_batch(self, submissions: Any) -> None:
        submissions.add(allreduce("before"))
        submissions.hold()
        submissions.add(allreduce("a"))
        submissions.add(allreduce("b"))
        submissions.let_go()
        submissions.add(allreduce("after"))
        begins = {submission.name: submission.begins_batch for _, submission in submissions.take_due(0.0)}
        assert begins == {"before": True, "a": True, "b": False, "after": True}

    def test_who_leaves_does_not_wait_for_it(self, submissions: Any) -> None:
        submissions.hold()
        submissions.add(allreduce("a"))
        assert taken(submissions, 0.0, at_once=True) == ["a"]


class TestBlocked:
    def test_said_when_there_is_nothing_to_announce_any_more(self, submissions: Any) -> None:
        handle, _ = submissions.add(allreduce("a"))
        submissions.note_blocked(handle, True)
        submissions.note_blocked(7, False)
        assert submissions.take_blocked() == {}, "what it waits for may be what is to be announced"
        submissions.take_due(CYCLE)
        assert submissions.take_blocked() == {handle: True, 7: False}
        assert submissions.take_blocked() == {}

    def test_the_last_word_counts(self, submissions: Any) -> None:
        submissions.note_blocked(3, True)
        submissions.note_blocked(3, False)
        assert submissions.take_blocked() == {3: False}


def test_those_of_a_set_that_is_removed_are_taken_out(rank: Any, submissions: Any) -> None:
    other = rank.add_process_set([0])
    for name, process_set in (("a", 0), ("b", other), ("c", 0), ("d", other)):
        submissions.add(allreduce(name), process_set)
    assert [submission.name for submission in submissions.take_of(other)] == ["b", "d"]
    submissions.add(allreduce("b"), other)  # a free name
    assert taken(submissions, CYCLE) == ["a", "c", "b"]


def test_closed_for_the_first_reason(submissions: Any) -> None:
    submissions.add(allreduce("a"))
    submissions.require_open()
    assert not submissions.are_closed
    submissions.close("rank 1 is gone")
    submissions.close("shut down")
    assert submissions.are_closed
    for refuse in (submissions.require_open, lambda: submissions.add(allreduce("b"))):
        with refused(HorovodInternalError, "unexpected", why="rank 1 is gone"):
            refuse()
    assert [submission.name for _, submission in submissions.take_all()] == ["a"]
    assert submissions.is_empty


def test_of_many_threads_none_is_lost(submissions: Any) -> None:
    found: list[int] = []
    names: list[str] = []

    def submit(thread: int) -> None:
        for number in range(200):
            found.append(submissions.add(allreduce(f"{thread}.{number}"))[0])

    threads = [threading.Thread(target=submit, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        names += taken(submissions, 0.0, at_once=True)
    names += taken(submissions, 0.0, at_once=True)
    assert len(set(found)) == len(set(names)) == len(names) == 800
    for thread in range(4):
        own = [name for name in names if name.startswith(f"{thread}.")]
        assert own == [f"{thread}.{number}" for number in range(200)], "each thread's in its order"
