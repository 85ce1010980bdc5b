"""Print the ports at an address that accept a connection: `knock.py ADDRESS PORT..`."""

import socket
import sys
from concurrent.futures import ThreadPoolExecutor

PATIENCE = 3.0  # seconds


def opens(port: str) -> bool:
    with socket.socket() as connection:
        connection.settimeout(PATIENCE)
        return connection.connect_ex((sys.argv[1], int(port))) == 0


with ThreadPoolExecutor() as pool:
    answers = list(pool.map(opens, sys.argv[2:]))
print(*(port for port, opened in zip(sys.argv[2:], answers, strict=True) if opened))
