"""What the cables carry: payload of plain TCP connections, by which all that is sent is judged."""

from __future__ import annotations

import sys
from statistics import median
from typing import Any

from horovod.made_hosts import MadeHosts

PORT = 5001
# Receives one connection and says how many bytes came per second, from the first to the last.
RECEIVE = """
import socket, sys, time
with socket.create_server(("", int(sys.argv[1]))) as server:
    print("ready", flush=True)
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


def payload_rate(hosts: MadeHosts, count: int, seconds: float) -> float:
    """Bytes per second of one TCP connection, all hosts sending to the next at once; the median."""
    names = hosts.names[:count]
    receivers = [hosts.start(name, [sys.executable, "-c", RECEIVE, str(PORT)]) for name in names]
    processes: list[Any] = list(receivers)
    try:
        for receiver in receivers:
            if receiver.stdout is None or receiver.stdout.readline() != "ready\n":
                raise RuntimeError(f"no receiver: {receiver.communicate()[1]}")
        for number, name in enumerate(names):
            words = [names[(number + 1) % count], str(PORT), str(seconds)]
            processes.append(hosts.start(name, [sys.executable, "-c", SEND, *words]))
        return median(float(receiver.communicate(timeout=60 + seconds)[0]) for receiver in receivers)
    finally:
        for process in processes:
            process.terminate()
            process.wait()
