"""Actions at the end of this process, also if multiprocessing has forked it.

A forked process ends by os._exit(), which skips atexit; multiprocessing has its own finalizers.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import weakref
from collections.abc import Callable
from multiprocessing import util
from typing import TypeVar

F = TypeVar("F", bound=Callable[[], object])
T = TypeVar("T")

_BEFORE_OTHERS = 100  # of multiprocessing's finalizers: atexit too calls ours before multiprocessing's
_functions: list[Callable[[], object]] = []
_finalized = 0  # the process whose finalizer calls them


def at_exit(function: F) -> F:
    """Have a function called once when this process or a forked child of it ends; the last one first."""
    _functions.append(function)
    atexit.register(function)
    if multiprocessing.parent_process() is not None:
        _finalize()
    return function


def _call_all() -> None:
    for function in reversed(_functions):
        atexit.unregister(function)  # spawned children reach this code too
        function()


def _finalize(*_: object) -> None:
    global _finalized
    if _finalized != os.getpid():
        _finalized = os.getpid()
        util.Finalize(None, _call_all, exitpriority=_BEFORE_OTHERS)


util.register_after_fork(_call_all, _finalize)  # multiprocessing forgets finalizers after a fork


def ended_at_exit(end: Callable[[T], object]) -> weakref.WeakSet[T]:
    """Return a set of objects with a thread, which ``end`` ends at exit. A forked child has none of them."""
    running: weakref.WeakSet[T] = weakref.WeakSet()
    os.register_at_fork(after_in_child=running.clear)

    @at_exit
    def end_all() -> None:
        for each in list(running):
            end(each)

    return running


def uncaught_exception() -> BaseException | None:
    """The uncaught exception that ends the interpreter. For functions given to ``at_exit``.

    atexit knows it only by sys.last_exc, which every error at an interactive prompt sets too. Under
    multiprocessing's finalizers the exception is still being raised.
    """
    on_its_way = sys.exc_info()[1]
    if on_its_way is not None and not isinstance(on_its_way, SystemExit):
        return on_its_way
    if hasattr(sys, "ps1"):
        return None
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
