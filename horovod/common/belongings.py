"""Objects kept for a job as long as it lasts, one of each class, found by any code that works for the job.

A process is usually one rank of one job, so code need not name the job. If threads are ranks, each thread
enters the belongings of its own job (jobs.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["OF_THIS_PROCESS", "Belongings", "own"]

T = TypeVar("T")


class Belongings:
    """Those of one job. Thread-safe."""

    def __init__(self) -> None:
        self._kept: dict[type, Any] = {}

    def own(self, kind: type[T]) -> T:
        """The job's own object of a class that needs no arguments, made when it is first asked for."""
        found: T | None = self._kept.get(kind)
        # setdefault: of several threads that ask for the first time, all get the same
        return found if found is not None else self._kept.setdefault(kind, kind())

    def forget(self) -> None:
        """Let go of all that was kept: the job has ended."""
        self._kept.clear()

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside the block, these are what this thread finds."""
        token = _entered.set(self)
        try:
            yield
        finally:
            _entered.reset(token)


OF_THIS_PROCESS = Belongings()
_entered: ContextVar[Belongings] = ContextVar("horovod_belongings", default=OF_THIS_PROCESS)


def own(kind: type[T]) -> T:
    """The object of a class that belongs to the job of the running code, as ``Belongings.own``."""
    return _entered.get().own(kind)
