"""Facts about an agent's host, for its HELLO, and answers to the driver's questions.

It imports psutil, so an agent that needs it runs with the installed packages.
"""

from __future__ import annotations

import errno
import os
import random
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from horovod.common import networks, software

_LOWEST_PORT, _PORTS_TRIED = 10_000, 100
_AT_ONCE = 16  # connections at a time


def describe() -> dict[str, Any]:
    """Return the host's facts.

    `addresses`: (interface, IPv4 address/prefix, Mbit/s or 0). `from` and `at`: both ends of the ssh
    connection that started this process; "" if none did.
    """
    words = os.environ.get("SSH_CONNECTION", "").split()
    ends = {"from": words[0], "at": words[2]} if len(words) == 4 else {"from": "", "at": ""}
    addresses = [(name, str(at), speed) for name, at, speed in networks.addresses() if at.version == 4]
    return {"addresses": addresses, "software": software.installed(), "fabric": has_fabric(), **ends}


def has_fabric() -> bool:
    """Whether this host has InfiniBand, Omni-Path, EFA (all: infiniband) or Slingshot (cxi)."""
    folders = (Path("/sys/class/infiniband"), Path("/sys/class/cxi"))
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def answer_to(question: Mapping[str, Any]) -> Any:
    """Answer a driver's question. ValueError for an unknown one."""
    if question.get("about") == "port":
        return free_port(int(question["wanted"]))
    if question.get("about") == "reach":
        targets = [str(target) for target in question["targets"]]
        return unreachable(int(question["port"]), float(question["seconds"]), targets)
    raise ValueError(f"no question: {dict(question)!r:.80}")


def unreachable(port: int, seconds: float, targets: Sequence[str]) -> list[str]:
    """Return the addresses that do not answer. A refusal is an answer: the route is open."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        answers = pool.map(lambda address: _answers(address, port, seconds), targets)
        return [address for address, answered in zip(targets, answers, strict=True) if not answered]


def _answers(address: str, port: int, seconds: float) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        return connection.connect_ex((address, port)) in (0, errno.ECONNREFUSED)


def free_port(wanted: int = 0) -> int:
    """Return `wanted` if it is free, else 0; for 0, return any free port.

    The system does not give such a port to connections, so it stays free until it is used. It is random, as
    other jobs may choose at the same time.
    """
    highest = _first_port_of_connections() - 1
    tries = [wanted] if wanted else [random.randint(_LOWEST_PORT, highest) for _ in range(_PORTS_TRIED)]
    return next((port for port in tries if _is_free(port)), 0)


def _first_port_of_connections() -> int:
    """Return the first port that Linux gives to connections; 65536 if these are nearly all ports."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        first = 0
    return first if first > 2 * _LOWEST_PORT else 65536


def _is_free(port: int) -> bool:
    try:
        with socket.create_server(("", port)):
            return True
    except OSError:
        return False
