"""horovod.common.waiting counts how long callers were blocked."""

import time
from typing import cast

import pytest

from horovod import _native as native
from horovod.common import jobs, waiting

PAUSE = 0.05  # seconds


class SlowEngine:
    """An engine whose only request takes a while, and fails if it is asked to."""

    def __init__(self, fails: bool = False) -> None:
        self.fails = fails

    def wait(self, handle: int) -> str:
        time.sleep(PAUSE)
        if self.fails:
            raise RuntimeError("refused")
        return f"result {handle}"


class SlowStepper:
    """Over after a while."""

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
    jobs.current().forget()
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
    assert waiting.blocked_microseconds() == third  # no clock runs while nobody waits
    jobs.current().forget()
    assert waiting.blocked_microseconds() == 0
