"""Pipes as tests of streams need them, and streams that cannot be written."""

from __future__ import annotations

import fcntl
import os
import termios
from typing import Any


def held_by(pipe: int) -> int:
    """Bytes that nobody has read yet."""
    held = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, held)
    return int.from_bytes(held, "little")


def closed_pipe(mode: str) -> Any:
    """A stream that nobody reads any more."""
    reader, writer = os.pipe()
    os.close(reader)
    return open(writer, mode)


def full_device(mode: str) -> Any:
    return open("/dev/full", mode)
