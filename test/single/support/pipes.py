"""Pipes for tests of streams, and streams that cannot be written to."""

from __future__ import annotations

import fcntl
import os
import termios
from typing import Any


def held_by(pipe: int) -> int:
    """The number of unread bytes."""
    held = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    return int.from_bytes(held, "little")


def closed_pipe(mode: str) -> Any:
    """A stream whose reader has closed it."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, mode)


def full_device(mode: str) -> Any:
    return open("/dev/full", mode)
