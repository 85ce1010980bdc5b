"""Ranks of one process that connect by TCP, and a twin of their handshake."""

from __future__ import annotations

import ctypes
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from horovod import _native as native

IS_SANITIZED = any(hasattr(ctypes.CDLL(None), f"__{name}_init") for name in ("asan", "tsan"))
MAGIC = b"hvd-tcp1"
CHALLENGE, HELLO, ANSWER = 40, 80, 32  # bytes


def tcp_settings(**values: object) -> native.Settings:
    settings = native.Settings()
    settings.transport = "tcp"
    for name, value in values.items():
        setattr(settings, name, value)
    return settings


class TcpJob:
    """Listeners of ranks 0..size-1 and their secret; `open()` connects them."""

    def __init__(self, size: int, hosts: Sequence[int] = (), address: str = "127.0.0.1") -> None:
        self.size = size
        self.hosts = [f"host {host}" for host in hosts or range(size)]
        self.secret = secrets.token_bytes(32)
        self.listeners = [native.TcpListener([address]) for _ in range(size)]
        self.endpoints = [listener.endpoints for listener in self.listeners]

    def open(self, settings: native.Settings | None = None) -> list[native.World]:
        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(lambda rank: self.open_one(rank, settings), range(self.size)))

    def open_one(self, rank: int, settings: native.Settings | None = None) -> native.World:
        names = [f"name {each}" for each in range(self.size)]
        return native.open_world_over_tcp(
            settings or tcp_settings(deterministic=True),
            *(self.listeners[rank], rank, self.hosts, names, self.endpoints, self.secret),
        )

    def connect(self, rank: int) -> socket.socket:
        """A connection to a rank's listener."""
        address, _, port = self.endpoints[rank][0].rpartition(":")
        return socket.create_connection((address, int(port)), timeout=20)


def tcp_worlds(
    size: int, hosts: Sequence[int] = (), settings: native.Settings | None = None
) -> list[native.World]:
    """The worlds of ranks 0..size-1. `hosts`: each rank's host number; by default each has its own host."""
    return TcpJob(size, hosts).open(settings)


def proof(whose: bytes, said: bytes, challenge: bytes, secret: bytes) -> bytes:
    return hmac.new(secret, whose + MAGIC + challenge[len(MAGIC) :] + said, hashlib.sha256).digest()


def hello(challenge: bytes, secret: bytes, rank: int, to: int, lane: int, size: int) -> bytes:
    said = struct.pack("<4I", rank, to, lane, size) + secrets.token_bytes(32)
    return said + proof(b"who dials", said, challenge, secret)


def answer(hello: bytes, challenge: bytes, secret: bytes) -> bytes:
    return proof(b"who listens", hello, challenge, secret)


def received(connection: socket.socket, count: int) -> bytes:
    """`count` bytes, or fewer if the peer has closed the connection."""
    data = b""
    while len(data) < count:
        try:
            more = connection.recv(count - len(data))
        except ConnectionResetError:
            break
        if not more:
            break
        data += more
    return data


def header(kind: int, length: int, transfer: int = 0, offset: int = 0, checksum: int = 0) -> bytes:
    return struct.pack("<2I3Q", kind, checksum, length, transfer, offset)
