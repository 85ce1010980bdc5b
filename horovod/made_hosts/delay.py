"""A switch with delay: forwards each frame after half a round trip.

    python -m horovod.made_hosts.delay SECONDS PORT..

It runs in the switch's network namespace until it is killed. It uses raw sockets with the kernel's headers of
offloaded segments, which stay whole (up to 64 KiB), so that Python is fast enough for 200 Mbit/s. A port
with a full queue drops frames, as a real switch does.
"""

from __future__ import annotations

import collections
import select
import socket
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23  # of linux/if_packet.h
_SO_RCVBUFFORCE = 33
_ALL = 3  # ETH_P_ALL
_NOTES = 10  # bytes of struct virtio_net_hdr, before each frame
_LONGEST = _NOTES + 14 + 65536
_ROOM = 64 << 20  # bytes of the receive buffer
_TURN = 64  # frames from one port before the next port


class _Frame(NamedTuple):
    due: float
    ports: list[socket.socket]
    data: bytes


def _opened(port: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # receives nothing before bind
    opened.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _ROOM)
    opened.bind((port, _ALL))
    opened.setblocking(False)
    return opened


class Switch:
    """Learns the port of an address from its first frame; before that, all ports get its frames."""

    def __init__(self, seconds: float, ports: Sequence[socket.socket]) -> None:
        self.seconds = seconds
        self.ports = ports
        self._port_of: dict[bytes, socket.socket] = {}
        self._waiting: collections.deque[_Frame] = collections.deque()

    def turn(self) -> None:
        """Wait for the next event, read frames, and forward the frames that are due."""
        left = self._waiting[0].due - time.monotonic() if self._waiting else None
        for port in select.select(self.ports, [], [], None if left is None else max(left, 0.0))[0]:
            self._take(port)
        now = time.monotonic()
        while self._waiting and self._waiting[0].due <= now:
            self._give(self._waiting.popleft())

    def _take(self, port: socket.socket) -> None:
        for _ in range(_TURN):
            try:
                data = port.recv(_LONGEST)
            except BlockingIOError:
                return
            to, sender = data[_NOTES : _NOTES + 6], data[_NOTES + 6 : _NOTES + 12]
            self._port_of[sender] = port
            known = self._port_of.get(to)
            ports = [known] if known is not None else [other for other in self.ports if other is not port]
            self._waiting.append(_Frame(time.monotonic() + self.seconds, ports, data))

    def _give(self, frame: _Frame) -> None:
        for port in frame.ports:
            try:
                port.send(frame.data)
            except OSError:  # the queue is full, or the cable is out
                continue


def main(words: list[str]) -> None:
    seconds, *names = words
    switch = Switch(float(seconds), [_opened(name) for name in names])
    while True:
        switch.turn()


if __name__ == "__main__":
    main(sys.argv[1:])
