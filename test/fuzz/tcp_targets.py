"""Input over TCP: from strangers, and from a rank that knows the secret but sends invalid bytes."""

from __future__ import annotations

import contextlib
import socket
import struct
import sys
import threading
from pathlib import Path

from campaign import Target

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "single" / "support"))
from tcp_worlds import ANSWER, CHALLENGE, TcpJob, header, hello, received, tcp_settings

from horovod import _native
from horovod import _native_testing as testing
from horovod.common.exceptions import HorovodInternalError

_MESSAGE, _BULK, _HEARTBEAT, _ABANDON, _GOODBYE = range(1, 6)


class _Door:
    """Rank 0 of a job of two ranks, which continues whatever strangers send."""

    def __init__(self) -> None:
        self.job = TcpJob(2)
        settings = tcp_settings(deterministic=True, log_level="fatal")
        self.world, self._other = self.job.open(settings)

    def knock(self, data: bytes) -> None:
        testing.receive(self._other)  # so that it does not count as silent
        with self.job.connect(0) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            connection.setblocking(False)
            for _ in range(1000):
                testing.receive(self.world)
                with contextlib.suppress(BlockingIOError):
                    if not connection.recv(4096):
                        return
            raise AssertionError("a stranger that has said nothing right is not sent away")


_door: _Door | None = None


def _stranger(data: bytes) -> None:
    global _door
    _door = _door or _Door()
    with contextlib.suppress(ConnectionError):
        _door.knock(data)


def _frame(kind: int, payload: bytes = b"", transfer: int = 0, offset: int = 0) -> bytes:
    checksum = 0 if kind == _BULK else testing.crc32c(payload)
    return header(kind, len(payload), transfer, offset, checksum) + payload


def _text(text: bytes) -> bytes:
    return _frame(_MESSAGE, struct.pack("<I", len(text)) + text)


def _mad_rank(data: bytes) -> None:
    """Rank 1 sends these bytes at the start of the job, and leaves."""
    job = TcpJob(2)

    def say() -> None:
        with contextlib.suppress(ConnectionError), job.connect(0) as connection:
            challenge = received(connection, CHALLENGE)
            connection.sendall(hello(challenge, job.secret, 1, 0, 0, 2))
            received(connection, ANSWER)
            connection.sendall(data)

    rank = threading.Thread(target=say)
    rank.start()
    try:
        job.open_one(0, tcp_settings(deterministic=True, log_level="fatal"))
    finally:
        rank.join()


def _digest() -> bytes:
    """Return the digest of rank 0's settings, which it sends to a rank with a different digest."""
    heard: list[bytes] = []

    def listen() -> None:
        with job.connect(0) as connection:
            challenge = received(connection, CHALLENGE)
            connection.sendall(hello(challenge, job.secret, 1, 0, 0, 2))
            received(connection, ANSWER)
            connection.sendall(_text(b"0"))
            heard.append(received(connection, len(header(0, 0)) + 4 + 10))

    job = TcpJob(2)
    rank = threading.Thread(target=listen)
    rank.start()
    with contextlib.suppress(ValueError):
        job.open_one(0, tcp_settings(deterministic=True, log_level="fatal"))
    rank.join()
    count = struct.unpack_from("<I", heard[0], len(header(0, 0)))[0]
    return heard[0][len(header(0, 0)) + 4 :][:count]


_HELLO = hello(bytes(CHALLENGE), bytes(32), 1, 0, 0, 2)
_DIGEST = _text(_digest())
_SETTINGS = _text(b"core=0.1 (abc)\nHOROVOD_CYCLE_TIME=1\nhost=h1\n" + _native.build_digest().encode())
_LAST = (
    _frame(_HEARTBEAT),
    _frame(_GOODBYE),
    _frame(_ABANDON, struct.pack("<i", 1) + b"rank 1 (h2): its process has ended"),
    _frame(_BULK, b"12345678", 3, 1),
)

TARGETS = (
    Target("stranger over TCP", (_HELLO, _HELLO[:40], b"GET / HTTP/1.1\r\n\r\n"), _stranger, (), 0.5),
    Target(
        "frames over TCP",
        (*(_DIGEST + _SETTINGS + last for last in _LAST), _frame(_HEARTBEAT) + _DIGEST),
        _mad_rank,
        (ValueError, HorovodInternalError),
        0.3,
    ),
)
