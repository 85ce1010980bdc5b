"""Actions at the end of this process, also if multiprocessing has forked it.

Such a process ends by os._exit(), which atexit does not hear of; multiprocessing has finalizers of its own.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing import util
from typing import TypeVar

__all__ = ["at_exit", "uncaught_exception"]

F = TypeVar("F", bound=Callable[[], object])

_BEFORE_OTHERS = 100  # of multiprocessing's finalizers, as atexit has ours before multiprocessing's
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
        atexit.unregister(function)  # children that were spawned come to that too
        function()


def _finalize(*_: object) -> None:
    global _finalized
    if _finalized != os.getpid():
        _finalized = os.getpid()
        util.Finalize(None, _call_all, exitpriority=_BEFORE_OTHERS)


util.register_after_fork(_call_all, _finalize)  # of multiprocessing's, which forgets finalizers then


def uncaught_exception() -> BaseException | None:
    """The exception that nobody caught, and that ends the interpreter. For what ``at_exit`` calls.

    atexit knows it only by traces, and at an interactive prompt every typing error leaves the same, and means
    nothing. Under multiprocessing's finalizers the exception is still on its way.
    """
    on_its_way = sys.exc_info()[1]
    if on_its_way is not None and not isinstance(on_its_way, SystemExit):
        return on_its_way
    if hasattr(sys, "ps1"):
        return None
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
