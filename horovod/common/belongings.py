"""Objects kept for a job as long as it lasts, one of each class. Code that works for the job finds them.

A process is usually one rank of one job, so code need not name the job. If threads are ranks, jobs.py
selects each thread's job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Belongings:
    """The objects of one job. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[type, Any] = {}

    def own(self, kind: type[T]) -> T:
        """The job's object of a class whose constructor takes no arguments, made by the first request."""
        found: T | None = self._kept.get(kind)
        # setdefault: threads that make the first request at the same time get the same object
        return found if found is not None else self._kept.setdefault(kind, kind())

    def forget(self) -> None:
        self._kept.clear()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside the block, this thread finds these objects."""
        token = _entered.set(self)
        try:
            yield
        finally:
            _entered.reset(token)


OF_THIS_PROCESS = Belongings()
_entered: ContextVar[Belongings] = ContextVar("horovod_belongings", default=OF_THIS_PROCESS)


def own(kind: type[T]) -> T:
    """The object of a class that belongs to the running code's job, as ``Belongings.own``."""
    belongings = _entered.get()
    found: T | None = belongings._kept.get(kind)  # most often, and at each gradient
    return found if found is not None else belongings.own(kind)
