"""horovodrun's own standard streams, and other files that it writes: any may be closed, full, or not read."""

from __future__ import annotations

import errno
import io
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO

from horovod.runner import errors
from horovod.runner.errors import OutputError


class OutputBlocked(Exception):
    """Raised by a signal's handler in a write that nobody reads, so that the write ends."""


def cannot_write(name: str, error: OSError | OutputBlocked) -> OutputError:
    """For what cannot be written any more."""
    number = error.errno if isinstance(error, OSError) and error.errno else 0
    return errors.cannot_write(
        name=name,
        why=f"{os.strerror(number)} ({errno.errorcode.get(number, number)})" if number else str(error),
        errno=number,
        is_blocked=isinstance(error, OutputBlocked),
        is_closed=isinstance(error, BrokenPipeError),
    )


class WriteLimit:
    """Once begun, by the handler of a signal that asks to end: lets no write of a Sink wait for a reader for
    longer than some seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def begin(self, *_: object) -> None:
        signal.signal(signal.SIGALRM, self._end_writing)
        signal.setitimer(signal.ITIMER_REAL, self._seconds, self._seconds)

    def _end_writing(self, *_: object) -> None:
        if Sink.is_writing:
            raise OutputBlocked("nobody reads it")


class Sink:
    """A file or stream that is written until that fails. From then on what it is given goes nowhere."""

    is_writing = False  # this process, to any of them

    def __init__(self, name: str, stream: BinaryIO) -> None:
        self._name = name
        self._stream = stream

    def write(self, data: bytes) -> None:
        self._guarded(self._write_whole, data)

    def flush(self) -> None:
        self._guarded(self._flush_whole)

    def close(self) -> None:
        self._guarded(self._stream.close)

    def _write_whole(self, data: bytes) -> None:
        """Whatever kind of stream it is. One without a buffer (PYTHONUNBUFFERED) takes a part where a signal
        comes, as at mpirun's end, and one that does not block takes what it has room for.
        """
        rest = memoryview(data)
        while rest:
            try:
                taken = self._stream.write(rest)
            except BlockingIOError as full:
                taken = full.characters_written
            if not taken:
                self._wait_for_room()
            rest = rest[taken or 0 :]

    def _flush_whole(self) -> None:
        while True:
            try:
                return self._stream.flush()
            except BlockingIOError:
                self._wait_for_room()

    def _wait_for_room(self) -> None:
        select.select([], [self._stream.fileno()], [])

    def _guarded(self, act: Callable[..., Any], *arguments: Any) -> None:
        try:
            try:
                Sink.is_writing = True
                act(*arguments)
            finally:
                Sink.is_writing = False
        except (OSError, OutputBlocked) as error:
            where = _path_of(self._stream) if self._name.startswith("standard") else ""
            if not self._stream.closed:
                discard(self._stream)
            raise cannot_write(self._name + where, error) from None


def discard(stream: Any) -> None:
    """Have the stream write nowhere: it would complain of what it could not write for ever after."""
    with suppress(io.UnsupportedOperation):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


def _path_of(stream: Any) -> str:
    """As " (/some/file)"; "" for a pipe and the like."""
    with suppress(OSError):
        path = os.readlink(f"/proc/self/fd/{stream.fileno()}")
        return f" ({path})" if path.startswith("/") else ""
    return ""


def say(text: str) -> None:
    """A line of horovodrun's own, on standard error. Where nothing can be said, the exit code has to."""
    try:
        print(f"horovodrun: {text}", file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def open_closed_ones() -> bool:
    """Put /dev/null where standard input or error is closed: the next file would get their number.

    Returns whether there is a standard output: it is not for us to send that nowhere.
    """
    is_closed = []
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            is_closed.append(number)
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stderr is None:
        sys.stderr = open(2, "w")  # noqa: SIM115 -- for good
    return 1 not in is_closed
