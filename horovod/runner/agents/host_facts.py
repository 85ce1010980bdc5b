"""Facts about the host of an agent, which its HELLO has, and answers to questions about it.

Imports psutil, which is why an agent that is to tell them runs with the installed packages.
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

from horovod.common import interfaces, software

_LOWEST_PORT, _PORTS_TRIED = 10_000, 100
_AT_ONCE = 16  # connections


def addresses() -> list[tuple[str, str, int]]:
    """(interface, address/prefix, Mbit/s or 0) of every IPv4 address of this host."""
    return [(name, str(at), speed) for name, at, speed in interfaces.addresses() if at.version == 4]


def describe(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """`from` and `at`: both ends of the ssh connection by which this process was started; "" without one."""
    words = environment.get("SSH_CONNECTION", "").split()
    ends = {"from": words[0], "at": words[2]} if len(words) == 4 else {"from": "", "at": ""}
    return {"addresses": addresses(), "software": software.installed(), "fabric": has_fabric(), **ends}


def has_fabric() -> bool:
    """Whether this host has InfiniBand, Omni-Path, EFA (all: infiniband) or Slingshot (cxi)."""
    folders = (Path("/sys/class/infiniband"), Path("/sys/class/cxi"))
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def answer_to(question: Mapping[str, Any]) -> Any:
    """Of a driver. ValueError for a question that nobody asks."""
    if question.get("about") == "port":
        return free_port(int(question["wanted"]))
    if question.get("about") == "reach":
        targets = [str(target) for target in question["targets"]]
        return unreachable(int(question["port"]), float(question["seconds"]), targets)
    raise ValueError(f"no question: {dict(question)!r:.80}")


def unreachable(port: int, seconds: float, targets: Sequence[str]) -> list[str]:
    """The addresses that do not answer. A refusal is an answer: the way there is open."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        answers = pool.map(lambda address: _answers(address, port, seconds), targets)
        return [address for address, answered in zip(targets, answers, strict=True) if not answered]


def _answers(address: str, port: int, seconds: float) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        return connection.connect_ex((address, port)) in (0, errno.ECONNREFUSED)


def free_port(wanted: int = 0) -> int:
    """`wanted` if nobody listens there, 0 otherwise; for 0 some port that is free.

    The system does not give it to connections, so that it stays free until it is used. It is a random one, as
    other jobs may choose at the same time.
    """
    highest = _first_port_of_connections() - 1
    tries = [wanted] if wanted else [random.randint(_LOWEST_PORT, highest) for _ in range(_PORTS_TRIED)]
    return next((port for port in tries if _is_free(port)), 0)


def _first_port_of_connections() -> int:
    """Linux says it; systems that give connections nearly all ports leave us those of everybody."""
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
