"""What horovodrun writes arrives whole, whatever kind of stream it is given."""

from __future__ import annotations

import fcntl
import os
import signal
import termios
import threading
import time
from collections.abc import Callable

import pytest

from horovod.runner.streams import OutputError, Sink

WHOLE = bytes(range(256)) * 4096  # 1 MiB: many times what a pipe holds


def held_by(pipe: int) -> int:
    held = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    return int.from_bytes(held, "little")


def room_of(pipe: int) -> int:
    return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def read_late(pipe: int, before: Callable[[], None], received: bytearray) -> None:
    """Once the pipe is full, so that its writer waits, do `before`, and read on to the end."""
    deadline = time.monotonic() + 20
    while held_by(pipe) < room_of(pipe) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)  # it has tried once more
    before()
    while data := os.read(pipe, 1 << 16):
        received += data
    os.close(pipe)


def received_of(stream_of: Callable[[int], Sink], before: Callable[[], None] = lambda: None) -> bytes:
    out, end = os.pipe()
    received = bytearray()
    reader = threading.Thread(target=read_late, args=[out, before, received])
    reader.start()
    sink = stream_of(end)
    sink.write(WHOLE)
    sink.flush()
    sink.close()
    reader.join()
    return bytes(received)


@pytest.mark.parametrize("buffering", [0, -1], ids=["unbuffered", "buffered"])
def test_a_signal_in_the_middle_of_a_write_loses_nothing(buffering: int) -> None:
    """The kernel then returns from write() with what it has taken, and a stream without a buffer says so."""
    came = []
    before = signal.signal(signal.SIGUSR1, lambda *_: came.append(1))
    try:
        received = received_of(
            lambda end: Sink("standard output", open(end, "wb", buffering=buffering)),  # noqa: SIM115 -- the Sink's
            lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1),
        )
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert came
    assert received == WHOLE


@pytest.mark.parametrize("buffering", [0, -1], ids=["unbuffered", "buffered"])
def test_a_stream_that_does_not_block_is_waited_for(buffering: int) -> None:
    """A program with which we share a terminal or pipe may have made it so."""

    def made(end: int) -> Sink:
        os.set_blocking(end, False)
        return Sink("standard output", open(end, "wb", buffering=buffering))

    assert received_of(made) == WHOLE


def test_what_cannot_be_written_is_an_error_once() -> None:
    sink = Sink("the file", open("/dev/full", "wb", buffering=0))  # noqa: SIM115 -- the Sink's
    with pytest.raises(OutputError, match=r"the file cannot be written: No space left on device \(ENOSPC\)"):
        sink.write(b"x")
    sink.write(b"y")
