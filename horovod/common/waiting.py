"""Waiting for the core while operations of several requests continue.

Such an operation makes its next request when the last one is done. Ranks may wait for their operations in
different orders: one waits for A and another for B, and each needs the other's next request. So each wait
advances all of this process' operations. All waiting for operations happens here, so it is timed here.

Ranks that wait for each other in a circle would do so for ever. A caller that has waited for a while reports
it to the engine; the engine releases a caller that may continue without the result if it is part of a circle
(``wait_or_yield``; schedule/deadlocks.h).
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from horovod import _native as native
from horovod.common import belongings

P = ParamSpec("P")
T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 20e-6, 500e-6  # seconds between polls
FIRST_NOTE, LONGEST_BETWEEN_NOTES = 5e-3, 0.1  # seconds between two reports of a wait to the engine


class Stepper(Protocol):
    """An operation of several requests, one after the other."""

    is_completed: bool  # some rank took part in it only because others did (see native.Result)

    def advance(self) -> bool:
        """Advance without waiting. Returns whether the operation is over. Raises nothing."""

    def note_blocked(self, may_yield: bool) -> None:
        """Call the engine's, for the current request."""

    def must_yield(self) -> bool:
        """Call the engine's, for the current request."""


class _Waits:
    """The operations that a rank's threads wait for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.under_way: list[Stepper] = []  # in the order in which they were begun
        self.blocked = 0.0  # seconds that threads have waited here


def _waits() -> _Waits:
    return belongings.own(_Waits)


def begin(stepper: Stepper) -> None:
    """Advance an operation in every wait until it is over."""
    waits = _waits()
    with waits.lock:
        waits.under_way.append(stepper)


def blocked_microseconds() -> int:
    """Microseconds that this rank's threads have waited for operations of this job, added up."""
    return int(1e6 * _waits().blocked)


def count(seconds: float) -> None:
    """Count seconds that a thread of this rank has waited elsewhere."""
    waits = _waits()
    with waits.lock:
        waits.blocked += seconds


def _timed(wait: Callable[P, T]) -> Callable[P, T]:
    """Count the time for which a function waits."""

    @functools.wraps(wait)
    def timed(*args: P.args, **kwargs: P.kwargs) -> T:
        started = time.perf_counter()
        try:
            return wait(*args, **kwargs)
        finally:
            count(time.perf_counter() - started)

    return timed


def advance_all() -> int:
    """Advance every operation without waiting. Returns how many are not over."""
    waits = _waits()
    if not waits.under_way:
        return 0
    with waits.lock:
        steppers = list(waits.under_way)
    over = [stepper for stepper in steppers if stepper.advance()]
    with waits.lock:
        waits.under_way[:] = [stepper for stepper in waits.under_way if stepper not in over]
        return len(waits.under_way)


def _pause_until(
    is_over: Callable[[], bool],
    note: Callable[[], None] = lambda: None,
    gives_up: Callable[[], bool] = lambda: False,
) -> bool:
    """Sleep until ``is_over`` (True), or ``gives_up`` (False). ``note`` reports the wait now and then."""
    pause, between_notes = FIRST_PAUSE, FIRST_NOTE
    due = time.monotonic() + between_notes
    while not is_over():
        if gives_up():
            return False
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
        if time.monotonic() > due:
            note()
            between_notes = min(2 * between_notes, LONGEST_BETWEEN_NOTES)
            due = time.monotonic() + between_notes
    return True


def _is_done(engine: native.Engine, handle: int) -> Callable[[], bool]:
    """Whether the engine has a request's result, or may wait for it as no operation needs advancing."""
    return lambda: not advance_all() or engine.has_result(handle)


def _is_over(stepper: Stepper) -> Callable[[], bool]:
    def is_over() -> bool:
        if stepper.advance():
            return True
        advance_all()
        return False

    return is_over


def _has_result(engine: native.Engine, handle: int) -> bool:
    advance_all()
    return engine.has_result(handle)


@_timed
def wait(engine: native.Engine, handle: int) -> native.Result:
    """Like ``engine.wait``: sleep until a request is done, or enqueued on the GPU, and return its result."""
    if not _has_result(engine, handle):
        _pause_until(_is_done(engine, handle), lambda: engine.note_blocked(handle, False))
    return engine.wait(handle)


@_timed
def wait_or_yield(engine: native.Engine, handle: int) -> bool:
    """Sleep until ``wait`` would not, and return True.

    Returns False if the wait would never end: other ranks first need an action that this caller takes only
    later.
    """
    if _has_result(engine, handle):
        return True
    is_done = _is_done(engine, handle)
    return _pause_until(
        lambda: not engine.must_yield(handle) and is_done(),
        lambda: engine.note_blocked(handle, True),
        lambda: engine.must_yield(handle),
    ) and engine.wait_or_yield(handle)


def has_result_within(engine: native.Engine, handle: int, seconds: float) -> bool:
    """Sleep until ``wait`` would not, at most so many seconds. Returns whether that is so.

    Training does not run meanwhile: the time is not counted, and the engine does not hurry.
    """
    deadline = time.monotonic() + seconds
    if not _pause_until(_is_done(engine, handle), gives_up=lambda: time.monotonic() > deadline):
        return False
    return engine.has_result_within(handle, max(deadline - time.monotonic(), 0.0))


def is_over_within(stepper: Stepper, seconds: float) -> bool:
    """Like has_result_within, for an operation of several requests."""
    deadline = time.monotonic() + seconds
    return _pause_until(_is_over(stepper), gives_up=lambda: time.monotonic() > deadline)


@_timed
def finish(stepper: Stepper) -> None:
    _pause_until(_is_over(stepper), lambda: stepper.note_blocked(False))


@_timed
def finish_or_yield(stepper: Stepper) -> bool:
    """Wait until an operation is over, and return True; or return False, as ``wait_or_yield``."""
    return _pause_until(_is_over(stepper), lambda: stepper.note_blocked(True), stepper.must_yield)


def finish_all() -> None:
    waits = _waits()
    with waits.lock:
        steppers = list(waits.under_way)
    for stepper in steppers:
        finish(stepper)
