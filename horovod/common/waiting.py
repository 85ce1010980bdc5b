"""Waiting for the core while operations that take several requests go on.

Such an operation makes its next request when the last one is done. Ranks may wait for their operations in
different orders: one waits for A and another for B, and each needs the other's next request. So whoever waits
here, for whatever, keeps all of this process' operations going meanwhile. All waiting for operations is done
here, so here it is timed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Protocol

from horovod import _native as native

__all__ = [
    *("Stepper", "advance_all", "begin", "blocked_microseconds"),
    *("finish", "finish_all", "forget_all", "wait"),
]

FIRST_PAUSE, LONGEST_PAUSE = 20e-6, 500e-6  # seconds between two looks


class Stepper(Protocol):
    """An operation that takes several requests, one after the other."""

    def advance(self) -> bool:
        """Do what can be done without waiting; whether the operation is over. Raises nothing."""


_lock = threading.Lock()
_under_way: list[Stepper] = []  # in the order in which they were begun
_blocked = 0.0  # seconds that threads have waited here


def begin(stepper: Stepper) -> None:
    """Keep an operation going until it is over."""
    with _lock:
        _under_way.append(stepper)


def forget_all() -> None:
    """Let go of everything: the job has ended."""
    global _blocked
    with _lock:
        _under_way.clear()
        _blocked = 0.0


def blocked_microseconds() -> int:
    """How long this process' threads have waited for operations of this job, added up."""
    return int(1e6 * _blocked)


@contextlib.contextmanager
def _timed() -> Iterator[None]:
    global _blocked
    started = time.perf_counter()
    try:
        yield
    finally:
        with _lock:
            _blocked += time.perf_counter() - started


def advance_all() -> int:
    """Advance every operation as far as it goes without waiting, and return how many are under way still."""
    if not _under_way:
        return 0
    with _lock:
        steppers = list(_under_way)
    over = [stepper for stepper in steppers if stepper.advance()]
    with _lock:
        _under_way[:] = [stepper for stepper in _under_way if stepper not in over]
        return len(_under_way)


def wait(engine: native.Engine, handle: int) -> native.Result:
    """As ``engine.wait``: sleep until a request is done, or given to the GPU, and return its result."""
    with _timed():
        pause = FIRST_PAUSE
        while advance_all() and not engine.has_result(handle):
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        return engine.wait(handle)


def finish(stepper: Stepper) -> None:
    """Wait until an operation is over."""
    with _timed():
        pause = FIRST_PAUSE
        while not stepper.advance():
            advance_all()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)


def finish_all() -> None:
    """Wait until all operations that are under way are over."""
    with _lock:
        steppers = list(_under_way)
    for stepper in steppers:
        finish(stepper)
