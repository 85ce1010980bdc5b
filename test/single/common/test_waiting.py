"""horovod.common.waiting: how long callers were blocked, their messages meanwhile, and which may continue."""

import math
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, cast

import pytest

from horovod import _native as native
from horovod.common import jobs, waiting

PAUSE = 0.05  # seconds


class SlowEngine:
    """An engine whose only request takes a while, and fails on demand."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def has_result(self, handle: int) -> bool:
        return False

    def wait(self, handle: int) -> str:
        time.sleep(PAUSE)
        if self.fails:
            raise RuntimeError("refused")
        return f"result {handle}"


class SlowStepper:
    """An operation that ends after a while."""

    def __init__(self) -> None:
        self.over_at = time.monotonic() + PAUSE

    def advance(self) -> bool:
        return time.monotonic() > self.over_at

    def note_blocked(self, may_yield: bool) -> None:
        assert not may_yield
        self.noted = True


def engine(fails: bool = False) -> native.Engine:
    return cast(native.Engine, SlowEngine(fails))


def test_waiting_is_counted_until_the_next_job() -> None:
    jobs.current().belongings.forget()
    assert waiting.blocked_microseconds() == 0
    assert waiting.wait(engine(), 3) == "result 3"
    first = waiting.blocked_microseconds()
    assert first >= 1e6 * PAUSE
    with pytest.raises(RuntimeError, match="refused"):
        waiting.wait(engine(fails=True), 4)
    second = waiting.blocked_microseconds()
    assert second >= first + 1e6 * PAUSE
    stepper = SlowStepper()
    waiting.finish(stepper)
    assert stepper.noted
    assert waiting.blocked_microseconds() > second
    third = waiting.blocked_microseconds()
    time.sleep(PAUSE)
    assert waiting.blocked_microseconds() == third  # the clock runs only during a wait
    jobs.current().belongings.forget()
    assert waiting.blocked_microseconds() == 0


class Clock:
    """Replaces `time`: sleep() advances the clock and runs the events that are due."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        monkeypatch.setattr(waiting, "time", self)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


class Scripted:
    """An engine and its operation: it ends at `over_at`, and must yield at `yields_at`."""

    def __init__(self, clock: Clock, over_at: float, yields_at: float = math.inf) -> None:
        self.clock, self.over_at, self.yields_at = clock, over_at, yields_at
        self.notes: list[tuple[float, bool]] = []
        self.waited: list[float] = []

    def advance(self) -> bool:
        return self.clock.now >= self.over_at

    def has_result(self, handle: int) -> bool:
        return self.clock.now >= self.over_at

    def must_yield(self, *handle: int) -> bool:
        return self.clock.now >= self.yields_at

    def note_blocked(self, *words: int | bool) -> None:
        self.notes.append((self.clock.now - 100.0, bool(words[-1])))

    def wait(self, handle: int) -> str:
        return f"result {handle}"

    def wait_or_yield(self, handle: int) -> bool:
        return True

    def has_result_within(self, handle: int, seconds: float) -> bool:
        self.waited.append(seconds)
        return self.clock.now + seconds >= self.over_at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    jobs.current().belongings.forget()
    yield Clock(monkeypatch)
    jobs.current().belongings.forget()


NEVER = math.inf
WAYS: list[tuple[Callable[[Any], object], bool]] = [
    (lambda scripted: waiting.wait(scripted, 3), False),
    (lambda scripted: waiting.wait_or_yield(scripted, 3), True),
    (waiting.finish, False),
    (waiting.finish_or_yield, True),
]


@pytest.mark.parametrize(("way", "may_yield"), WAYS)
def test_who_waits_for_long_says_so_now_and_then(
    clock: Clock, way: Callable[[Any], object], may_yield: bool
) -> None:
    """The first report comes soon, later ones at increasing intervals."""
    waiting.begin(
        cast(waiting.Stepper, Scripted(clock, NEVER))
    )  # otherwise a wait on the engine alone does not take turns
    scripted = Scripted(clock, over_at=101.0)
    way(scripted)
    assert 101.0 <= clock.now < 101.0 + 2 * waiting.LONGEST_PAUSE
    assert waiting.blocked_microseconds() == int(1e6 * (clock.now - 100.0))
    assert {told for _, told in scripted.notes} == {may_yield}
    times = [0.0, *(when for when, _ in scripted.notes)]
    breaks = [after - before for before, after in pairwise(times)]
    longest = waiting.LONGEST_BETWEEN_NOTES
    wanted = [min(waiting.FIRST_NOTE * 2**number, longest) for number in range(len(breaks))]
    assert breaks == pytest.approx(wanted, abs=2 * waiting.LONGEST_PAUSE)
    assert breaks[-1] == pytest.approx(longest, abs=2 * waiting.LONGEST_PAUSE)
    assert max(clock.pauses) == waiting.LONGEST_PAUSE and clock.pauses[0] == waiting.FIRST_PAUSE
    assert clock.pauses == sorted(clock.pauses)


def test_what_may_yield_does_so_as_soon_as_it_must(clock: Clock) -> None:
    for way in (lambda one: waiting.wait_or_yield(one, 3), waiting.finish_or_yield):
        waiting.begin(cast(waiting.Stepper, Scripted(clock, NEVER)))
        assert way(Scripted(clock, NEVER, yields_at=clock.now + 0.01)) is False
        assert way(Scripted(clock, clock.now + 0.01)) is True
        assert way(Scripted(clock, clock.now)) is True
    assert clock.now == pytest.approx(100.04, abs=0.01)


def test_who_waits_keeps_all_operations_going(clock: Clock) -> None:
    steppers = [Scripted(clock, over_at=100.0 + number) for number in (1, 2, 3)]
    assert waiting.advance_all() == 0
    for stepper in steppers:
        waiting.begin(cast(waiting.Stepper, stepper))
    assert waiting.advance_all() == 3
    waiting.finish(cast(waiting.Stepper, steppers[1]))
    assert 102.0 <= clock.now < 102.1 and waiting.advance_all() == 1
    waiting.finish_all()
    assert 103.0 <= clock.now < 103.1 and waiting.advance_all() == 0


def test_without_operations_of_several_requests_the_engine_waits_by_itself(clock: Clock) -> None:
    assert waiting.wait(cast(native.Engine, Scripted(clock, NEVER)), 4) == "result 4"
    assert clock.pauses == []


@pytest.mark.parametrize(("over_at", "is_over"), [(100.0, True), (100.4, True), (101.0, False)])
def test_waits_of_limited_time_are_not_counted(clock: Clock, over_at: float, is_over: bool) -> None:
    waiting.begin(cast(waiting.Stepper, Scripted(clock, NEVER)))
    one = Scripted(clock, over_at)
    assert waiting.has_result_within(cast(native.Engine, one), 3, 0.5) is is_over
    assert waiting.is_over_within(cast(waiting.Stepper, one), max(100.5 - clock.now, 0.0)) is is_over
    assert clock.now == pytest.approx(min(over_at, 100.5), abs=2 * waiting.LONGEST_PAUSE)
    assert waiting.blocked_microseconds() == 0 and one.notes == []


def test_what_is_left_of_the_time_is_the_engines(clock: Clock) -> None:
    one = Scripted(clock, NEVER)
    assert waiting.has_result_within(cast(native.Engine, one), 3, 0.5) is False
    late = Scripted(clock, 100.2)
    waiting.begin(cast(waiting.Stepper, Scripted(clock, 100.1)))
    assert waiting.has_result_within(cast(native.Engine, late), 3, 0.5) is True
    assert one.waited == [0.5] and late.waited == pytest.approx([0.4], abs=0.01)
