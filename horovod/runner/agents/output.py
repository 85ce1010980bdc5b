"""The ranks' output, shown line by line with the rank. A separate thread writes it, so that a slow reader
delays only output.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from horovod.runner import errors
from horovod.runner.agents.frames import ERROR, OUTPUT, Frame
from horovod.runner.agents.streams import read
from horovod.runner.errors import OutputError
from horovod.runner.streams import Sink, cannot_write

T = TypeVar("T")
_AT_ONCE = 64  # items to show before a flush
_LABEL = re.compile(r"\d{1,7}(\.\d{1,7})?")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)")


class RankOutput:
    """Shows ranks' output as `[rank]<stdout>:line`; also writes it unchanged to files if a folder is given.

    Bytes pass unchanged, in any encoding. A carriage return ends a line too, so that progress bars move.
    OutputError, once for each stream or file, when it cannot be written any more.

    In an elastic job the numbers are workers' numbers; `name` sets the label that is shown instead of a rank.
    """

    def __init__(
        self,
        ranks: int,
        stdout: BinaryIO,
        stderr: BinaryIO,
        folder: str | None = None,
        timestamps: bool = False,
    ) -> None:
        self._streams = {OUTPUT: Sink("standard output", stdout), ERROR: Sink("standard error", stderr)}
        self._names = {OUTPUT: "stdout", ERROR: "stderr"}
        self._timestamps = timestamps
        self._labels: dict[int, str] = {}  # of workers whose label is not their number
        self._unfinished: dict[tuple[int, bytes], list[bytes]] = {}
        self._after_return: set[tuple[int, bytes]] = set()
        self._files: dict[tuple[str, bytes], Sink] = {}
        self._folder = None if folder is None else Path(folder)
        self._width = len(str(ranks - 1))
        for rank in range(ranks if folder is not None else 0):
            try:
                self._open_files(str(rank))
            except OSError as error:
                for file in self._files.values():
                    file.close()
                raise errors.wrong_value(
                    option="--output-filename", value=str(folder), why=str(error)
                ) from None

    def name(self, number: int, label: str) -> None:
        """Give a worker a label before its first output: a rank, or 3.2 for the second worker that began as
        rank 3.

        ValueError for anything else.
        """
        if not _LABEL.fullmatch(label):
            raise ValueError(f"{label!r:.40} is no label of a worker")
        if label != str(number):
            self._labels[number] = label

    def _label(self, number: int) -> str:
        return self._labels.get(number, str(number))

    def _open_files(self, label: str) -> None:
        if self._folder is None:
            return
        rank, dot, times = label.partition(".")
        own = self._folder / f"rank.{int(rank):0{self._width}}{dot}{times}"
        own.mkdir(parents=True, exist_ok=True)
        for kind, name in self._names.items():
            self._files[label, kind] = Sink(str(own / name), (own / name).open("wb", buffering=0))

    def _file(self, label: str, kind: bytes) -> Sink | None:
        """Return the file; None without a folder. OutputError if a later worker's file cannot be made."""
        if self._folder is not None and (label, kind) not in self._files:
            try:
                self._open_files(label)
            except OSError as error:
                raise cannot_write(f"--output-filename {self._folder}", error) from None
        return self._files.get((label, kind))

    def write(self, rank: int, kind: bytes, data: bytes) -> None:
        key = (rank, kind)
        if (file := self._file(self._label(rank), kind)) is not None:
            file.write(data)
            file.flush()  # output must be in the file if the process fails
        if key in self._after_return and data:
            self._after_return.discard(key)
            if data.startswith(b"\n"):  # the second half of a split \r\n
                self._show(kind, b"\n")
                data = data[1:]
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if end:
            whole = b"".join([*self._unfinished.pop(key, []), data[:end]])
            self._show(kind, b"".join(self._prefixed(rank, kind, line) for line in _LINE.findall(whole)))
            if data.endswith(b"\r"):
                self._after_return.add(key)
        if data[end:]:
            self._unfinished.setdefault(key, []).append(data[end:])

    def _prefixed(self, rank: int, kind: bytes, line: bytes) -> bytes:
        if line == b"\r":  # progress bars begin with it
            return line
        when = time.asctime() if self._timestamps else ""
        return f"{when}[{self._label(rank)}]<{self._names[kind]}>:".encode() + line

    def _show(self, kind: bytes, data: bytes) -> None:
        """Write to one stream, after flushing the other, which keeps their order."""
        if not data:
            return
        try:
            self._streams[ERROR if kind == OUTPUT else OUTPUT].flush()
        finally:  # the other stream may have no reader any more
            self._streams[kind].write(data)

    def pass_on(self, kind: bytes, data: bytes) -> None:
        """Show text of no rank, unchanged."""
        self._show(kind, data)
        self._streams[kind].flush()

    def flush(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def end(self, number: int) -> None:
        """Show a worker's last lines and close its files, after its end and all its output."""
        self._show_unfinished(key for key in list(self._unfinished) if key[0] == number)
        self.flush()
        for kind in self._names:
            if (file := self._files.pop((self._label(number), kind), None)) is not None:
                file.close()

    def finish(self) -> None:
        """Show unfinished last lines, each with a newline, and close the files."""
        self._show_unfinished(sorted(self._unfinished))
        self.flush()
        for file in self._files.values():
            file.close()

    def _show_unfinished(self, keys: Iterable[tuple[int, bytes]]) -> None:
        for rank, kind in keys:
            line = b"".join(self._unfinished.pop((rank, kind)))
            self._show(kind, self._prefixed(rank, kind, line) + b"\n")


class Writer:
    """Runs `output` on its own thread. `descriptor`: readable when `done` or `errors` have something."""

    def __init__(self, output: RankOutput) -> None:
        self._output = output
        self._queue: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._shown: list[tuple[str, int]] = []  # since the last flush
        self._is_over = False
        self._done: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._errors: queue.SimpleQueue[OutputError] = queue.SimpleQueue()
        self._outstanding: Counter[str] = Counter()  # bytes of each host that are not shown yet
        self.descriptor, self._end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._end, False)
        self._thread = threading.Thread(target=self._write, name="horovodrun output", daemon=True)
        self._thread.start()

    def show(self, worker: int, records: list[Frame], host: str, size: int) -> None:
        """Show a worker's output. `done` will return the `size` bytes of its host."""
        self._outstanding[host] += size
        self._queue.put(partial(self._show, worker, records, host, size))

    def _show(self, worker: int, records: list[Frame], host: str, size: int) -> None:
        for kind, payload in records:
            self._guarded(partial(self._output.write, worker, kind, payload))
        self._shown.append((host, size))

    def say(self, text: str) -> None:
        self.pass_on(f"horovodrun: {text}\n".encode(errors="replace"))

    def pass_on(self, words: bytes) -> None:
        """Show lines of no rank on standard error."""
        self._queue.put(lambda: self._output.pass_on(ERROR, words))

    def label(self, worker: int, text: str) -> None:
        """Set a worker's label; "": the worker has ended."""
        act = partial(self._output.name, worker, text) if text else partial(self._output.end, worker)
        self._queue.put(act)

    def done(self) -> list[tuple[str, int, bool]]:
        """Return (host, bytes, whether no more of it waits) of the output shown since the last call."""
        while read(self.descriptor):
            pass
        found = []
        for host, size in _taken(self._done):
            self._outstanding[host] -= size
            found.append((host, size, not self._outstanding[host]))
        return found

    def errors(self) -> list[OutputError]:
        return _taken(self._errors)

    def end(self) -> None:
        """Finish the output: no call may follow that writes."""
        self._queue.put(self._finish)

    def _finish(self) -> None:
        self._is_over = True
        self._output.finish()

    def has_ended(self, seconds: float) -> bool:
        """After `end`: wait for at most `seconds`; return whether all is shown."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        os.close(self.descriptor)
        os.close(self._end)

    def _write(self) -> None:
        while not self._is_over:
            acts = [self._queue.get()]
            while len(acts) < _AT_ONCE and not self._queue.empty():
                acts.append(self._queue.get())
            for act in acts:
                self._guarded(act)
            self._guarded(self._output.flush)
            for shown in self._shown:
                self._done.put(shown)
            self._shown.clear()
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
            return  # a full pipe wakes the reader too


def _taken(queued: queue.SimpleQueue[T]) -> list[T]:
    found = []
    while not queued.empty():
        found.append(queued.get())
    return found
