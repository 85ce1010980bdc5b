"""horovodrun's standard streams and other output files, any of which may be closed, full or unread."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from horovod.runner import errors
from horovod.runner.errors import OutputError

_MOST_WAITING = 1 << 20  # unwritten bytes that a sink holds at most


def cannot_write(name: str, error: OSError) -> OutputError:
    """The error for a failed write to `name`."""
    number = error.errno or 0
    return errors.cannot_write(
        name=name,
        why=f"{os.strerror(number)} ({errno.errorcode.get(number, number)})" if number else str(error),
        errno=number,
        is_closed=isinstance(error, BrokenPipeError),
    )


class Sink:
    """A file or stream that is written until a write fails. It drops all data after that.

    Data is buffered, and written by `flush` at the latest. The first failed write raises OutputError.
    """

    def __init__(self, name: str, stream: BinaryIO | io.RawIOBase) -> None:
        self._name = name
        self._stream = stream
        self._waiting = bytearray()

    def write(self, data: bytes) -> None:
        self._waiting += data
        if len(self._waiting) >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        data, self._waiting = bytes(self._waiting), bytearray()
        if data:
            self._guarded(lambda: self._write_whole(data))

    def close(self) -> None:
        self.flush()
        self._guarded(self._stream.close)

    def _write_whole(self, data: bytes) -> None:
        """Write all data: some streams take a part; a non-blocking one takes only what it has room for."""
        rest = memoryview(data)
        while rest:
            try:
                taken = self._stream.write(rest)
            except BlockingIOError as full:
                taken = full.characters_written
            if not taken:
                self._wait_for_room()
            rest = rest[taken or 0 :]
        while True:
            try:
                return self._stream.flush()
            except BlockingIOError:
                self._wait_for_room()

    def _wait_for_room(self) -> None:
        select.select([], [self._stream.fileno()], [])

    def _guarded(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except OSError as error:
            where = _path_of(self._stream) if self._name.startswith("standard") else ""
            if not self._stream.closed:
                discard(self._stream)
            raise cannot_write(self._name + where, error) from None


def discard(stream: Any) -> None:
    """Redirect the stream to /dev/null. Otherwise every later flush of unwritten data would fail again."""
    with suppress(io.UnsupportedOperation):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


def discard_full(stream: Any) -> None:
    """As `discard`, but only if the next write would wait for a reader."""
    with suppress(io.UnsupportedOperation):
        if not select.select([], [stream.fileno()], [], 0)[1]:
            discard(stream)


def _path_of(stream: Any) -> str:
    """Return " (/some/file)", or "" for a pipe and the like."""
    with suppress(OSError):
        path = os.readlink(f"/proc/self/fd/{stream.fileno()}")
        return f" ({path})" if path.startswith("/") else ""
    return ""


def say(text: str) -> None:
    """Print a line of horovodrun's own on standard error. If that fails, only the exit code is left."""
    try:
        print(f"horovodrun: {text}", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def open_closed_ones() -> bool:
    """Open /dev/null for a closed standard stream, whose number the next opened file would get otherwise.

    Returns whether standard output was open: the caller must not drop output silently.
    """
    is_closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            is_closed.append(number)
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    if sys.stderr is None:
        sys.stderr = open(2, "w")  # noqa: SIM115 -- stays open
    return 1 not in is_closed
