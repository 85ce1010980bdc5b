"""horovodrun's own standard streams, and other files that it writes: any may be closed, full, or not read."""

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

_MOST_WAITING = 1 << 20  # bytes of a sink that are not written yet


def cannot_write(name: str, error: OSError) -> OutputError:
    """For what cannot be written any more."""
    number = error.errno or 0
    return errors.cannot_write(
        name=name,
        why=f"{os.strerror(number)} ({errno.errorcode.get(number, number)})" if number else str(error),
        errno=number,
        is_closed=isinstance(error, BrokenPipeError),
    )


class Sink:
    """A file or stream that is written until that fails. From then on what it is given goes nowhere.

    What is given is written by `flush` at the latest. OutputError where it cannot be, once.
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
        """Whatever kind of stream it is: some take a part; one that does not block, what it has room for."""
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
    """Have the stream write nowhere: it would complain of what it could not write for ever after."""
    with suppress(io.UnsupportedOperation):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)


def discard_full(stream: Any) -> None:
    """As `discard`, where the next word would wait for a reader."""
    with suppress(io.UnsupportedOperation):
        if not select.select([], [stream.fileno()], [], 0)[1]:
            discard(stream)


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
