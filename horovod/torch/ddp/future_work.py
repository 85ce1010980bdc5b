"""A c10d Work that wraps a future, and the thread that runs the callbacks of a process group's futures.

A callback may wait for another collective, as in torch's PowerSGD hook. In the thread that ends collectives
it would deadlock. With a thread for each, callbacks would overtake each other, and ranks would start further
collectives in different orders.
"""

from __future__ import annotations

import contextlib
import functools
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from horovod.common.exits import ended_at_exit
from horovod.torch.ddp import errors

NO_TIMEOUT = timedelta(0)
_EXIT_SECONDS = 10.0


class FutureWork(dist.Work):
    """The Work of a collective that ends when a future does, with the future's errors.

    torch's own Works of futures have no timeout, and do not raise errors that were set in Python.

    Args:
        future: done when ``tensors`` hold the result.
        tensors: the value of ``get_future()``, as with gloo.
        what: the collective, such as "allreduce of 1000 elements", for errors.
        callbacks: runs the callbacks of ``get_future()``.
    """

    def __init__(
        self,
        future: torch.futures.Future[None],
        tensors: Sequence[torch.Tensor],
        what: str,
        callbacks: CallbackThread,
    ) -> None:
        super().__init__()
        self._future = future
        self._tensors = list(tensors)
        self._what = what
        self._callbacks = callbacks
        self._lock = threading.Lock()
        self._given: torch.futures.Future[list[torch.Tensor]] | None = None  # made once, under the lock
        self._ended = threading.Event()
        future.add_done_callback(lambda _: self._ended.set())

    def wait(self, timeout: timedelta = NO_TIMEOUT) -> bool:
        """Wait for the result; on a GPU the current stream waits, not the host.

        RuntimeError after ``timeout``, if there is one; or the collective's error.
        """
        if timeout > NO_TIMEOUT and not self._ended.wait(timeout.total_seconds()):
            raise errors.not_done(what=self._what, seconds=timeout.total_seconds())
        if self._given is not None and not self._callbacks.is_current:
            with contextlib.suppress(Exception):  # the error is raised below
                self._given.wait()  # done, too, from now on
        self._future.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        """Return whether it has ended, with or without error."""
        return self._future.done()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        if self.is_completed():
            try:
                self._future.value()
            except Exception as error:
                return error
        return None

    def result(self) -> list[torch.Tensor]:
        self._future.value()
        return self._tensors

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Return a future that is done when this is, with the tensors, or a RuntimeError with the reason.

        Its callbacks run one after the other, in the order in which collectives end. They may start
        collectives and wait for them.
        """
        with self._lock:
            if self._given is None:
                self._given = self._future_with_tensors()
            return self._given

    def _future_with_tensors(self) -> torch.futures.Future[list[torch.Tensor]]:
        def tensors(future: torch.futures.Future[None]) -> list[torch.Tensor]:
            future.value()
            return self._tensors

        # On a GPU the host's part is done by now, and the stream does the rest.
        if self._future.done() or self._callbacks.is_current:
            return self._future.then(tensors)
        handed_on: torch.futures.Future[None] = torch.futures.Future()
        given = handed_on.then(tensors)
        callbacks = self._callbacks
        self._future.add_done_callback(
            lambda done: callbacks.call(functools.partial(_hand_on, done, handed_on))
        )
        return given


def _hand_on(done: torch.futures.Future[None], to: torch.futures.Future[None]) -> None:
    try:
        to.set_result(done.value())
    except Exception as error:
        to.set_exception(error)  # type: ignore[arg-type]


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


_running = ended_at_exit(CallbackThread.close)


def _run(calls: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (callback := calls.get()) is not None:
        callback()
