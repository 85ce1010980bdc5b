"""A thread that runs the callbacks of a process group's futures, one after the other.

A callback may wait for another collective, as in torch's PowerSGD hook. In the thread that ends collectives
it would deadlock. With a thread for each, callbacks would overtake each other, and ranks would start further
collectives in different orders.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import Callable

from horovod.common.exits import at_exit

__all__ = ["CallbackThread"]

_EXIT_SECONDS = 10.0


class CallbackThread:
    """Runs callbacks in order. Thread-safe. The thread starts with the first callback."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None  # guarded by _lock
        _running.add(self)

    def call(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` after all earlier ones."""
        with self._lock:
            if self._thread is None:
                arguments = (self._calls,)
                name = "horovod-ddp-callbacks"
                self._thread = threading.Thread(target=_run, args=arguments, name=name, daemon=True)
                self._thread.start()
        self._calls.put(callback)

    @property
    def is_current(self) -> bool:
        """Whether the caller is a callback."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the thread after the callbacks it has. Give up if one of them takes too long."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join(_EXIT_SECONDS)


_running: weakref.WeakSet[CallbackThread] = weakref.WeakSet()


os.register_at_fork(after_in_child=_running.clear)  # a child has no such thread


@at_exit
def _end_threads() -> None:
    for each in list(_running):
        each.close()


def _run(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (callback := calls.get()) is not None:
        callback()
