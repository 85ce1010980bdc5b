"""Shows what ranks write on a thread of its own, so that a reader who waits holds up nothing else."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from horovod.runner.agents.output import RankOutput
from horovod.runner.agents.records import ERROR, Record
from horovod.runner.errors import OutputError

T = TypeVar("T")
_AT_ONCE = 64  # things to show, before they are flushed


class Writer:
    """`output` belongs to its thread. `descriptor`: readable when `done` or `errors` have something."""

    def __init__(self, output: RankOutput) -> None:
        self._output = output
        self._queue: queue.SimpleQueue[tuple[Callable[[], None] | None, str, int]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._errors: queue.SimpleQueue[OutputError] = queue.SimpleQueue()
        self.descriptor, self._end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._end, False)
        self._thread = threading.Thread(target=self._write, name="horovodrun output", daemon=True)
        self._thread.start()

    def show(self, worker: int, records: list[Record], host: str, size: int) -> None:
        """What a worker has written. `done` tells of the `size` bytes from its host."""
        self._put(partial(self._show, worker, records), host, size)

    def _show(self, worker: int, records: list[Record]) -> None:
        for kind, payload in records:
            self._guarded(partial(self._output.write, worker, kind, payload))

    def say(self, text: str) -> None:
        """A line of horovodrun's own."""
        self.pass_on(f"horovodrun: {text}\n".encode(errors="replace"))

    def pass_on(self, words: bytes) -> None:
        """Lines of nobody's, on standard error."""
        self._put(lambda: self._output.pass_on(ERROR, words))

    def label(self, worker: int, text: str) -> None:
        """Of a worker; "": it has ended."""
        self._put(partial(self._output.name, worker, text) if text else partial(self._output.end, worker))

    def done(self) -> list[tuple[str, int]]:
        """(host, bytes) of what has been shown since."""
        while True:
            try:
                if not os.read(self.descriptor, 1 << 16):
                    break
            except BlockingIOError:
                break
        return _taken(self._done)

    def errors(self) -> list[OutputError]:
        """Why something cannot be written any more, since."""
        return _taken(self._errors)

    def end(self) -> None:
        """Nothing is to be written afterwards."""
        self._put(self._output.finish)
        self._queue.put((None, "", 0))

    def has_ended(self, seconds: float) -> bool:
        """Whether all is shown, after `end`; waits so long at most."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        """When it has ended."""
        os.close(self.descriptor)
        os.close(self._end)

    def _put(self, act: Callable[[], None], host: str = "", size: int = 0) -> None:
        self._queue.put((act, host, size))

    def _write(self) -> None:
        is_over = False
        while not is_over:
            things = [self._queue.get()]
            while len(things) < _AT_ONCE and not self._queue.empty():
                things.append(self._queue.get())
            for act, _, _ in things:
                if act is None:
                    is_over = True
                else:
                    self._guarded(act)
            self._guarded(self._output.flush)
            for _, host, size in things:
                if size:
                    self._done.put((host, size))
            self._wake()

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except OutputError as error:
            self._errors.put(error)

    def _wake(self) -> None:
        try:
            os.write(self._end, b"w")
        except BlockingIOError:
            return  # it will wake anyway


def _taken(queued: queue.SimpleQueue[T]) -> list[T]:
    found = []
    while not queued.empty():
        found.append(queued.get())
    return found
