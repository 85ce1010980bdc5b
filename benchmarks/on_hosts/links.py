"""The payload rate of plain TCP connections over the cables: the reference for all other figures."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

from horovod.made_hosts import MadeHosts

# Receives one connection and prints the bytes per second, from the first to the last byte.
RECEIVE = """
import socket, sys, time
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    server.settimeout(30)
    connection = server.accept()[0]
buffer, count, begin = bytearray(1 << 20), 0, None
while received := connection.recv_into(buffer):
    if begin is None:
        begin = time.perf_counter()
    else:
        count += received
    end = time.perf_counter()
print(count / (end - begin))
"""
SEND = """
import socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
data, end = bytes(1 << 20), time.monotonic() + float(sys.argv[3])
while time.monotonic() < end:
    connection.sendall(data)
"""


Start = Callable[[int, list[str]], "subprocess.Popen[str]"]


def payload_rate(hosts: MadeHosts, count: int, seconds: float) -> float:
    """Return the median bytes per second of a TCP connection while each host sends to the next."""
    names = hosts.names[:count]
    return _rate(lambda number, words: hosts.start(names[number], words), names, seconds)


def loopback_rate(count: int, seconds: float) -> float:
    """Return the same for `count` processes on this machine, over its loopback device."""

    def start(number: int, words: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return _rate(start, ["127.0.0.1"] * count, seconds)


def _rate(start: Start, addresses: list[str], seconds: float) -> float:
    """Measure the rates. `start` starts a command at the place with this number."""
    receivers = [start(number, [sys.executable, "-c", RECEIVE]) for number in range(len(addresses))]
    processes: list[Any] = list(receivers)
    try:
        ports = []
        for receiver in receivers:
            said = receiver.stdout.readline() if receiver.stdout else ""
            if not said:
                raise RuntimeError(f"no receiver: {receiver.communicate()[1]}")
            ports.append(said.strip())
        for number in range(len(addresses)):
            to = (number + 1) % len(addresses)
            words = [sys.executable, "-c", SEND, addresses[to], ports[to], str(seconds)]
            processes.append(start(number, words))
        return median(float(receiver.communicate(timeout=60 + seconds)[0]) for receiver in receivers)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
