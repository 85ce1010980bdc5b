"""Runs on another host for horovodrun, by its path: says what the host is like, or keeps a file for ranks.

    describe                      which addresses and versions it has
    reach PORT SECONDS ADDRESS..  which of the addresses cannot be reached from it
    port PORT                     PORT if nobody listens there; for 0 a port that is free; 0 for none
    hold NAME SIZE                keeps SIZE bytes of standard input as a payload for the ranks here, until
                                  standard input ends

Answers are one line of standard output: MARK and JSON. Whatever a login script prints is left aside. Imports
little of this package, nothing that loads the core, and of others psutil.
"""

from __future__ import annotations

import errno
import json
import os
import random
import socket
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

MARK = "horovodrun-host "
_LOWEST_PORT, _PORTS_TRIED = 10_000, 100
VERSION = 2  # of the answers: remembered ones of another version are not understood


def addresses() -> list[tuple[str, str, int]]:
    """(interface, address/prefix, Mbit/s or 0) of every IPv4 address of this host."""
    _find_this_package()
    from horovod.common import interfaces

    return [(name, str(at), speed) for name, at, speed in interfaces.addresses() if at.version == 4]


def describe() -> dict[str, Any]:
    """`from` and `at`: both ends of the ssh connection that runs this, "" when there is none."""
    _find_this_package()
    from horovod.common import software

    words = os.environ.get("SSH_CONNECTION", "").split()
    ends = {"from": words[0], "at": words[2]} if len(words) == 4 else {"from": "", "at": ""}
    return {"addresses": addresses(), "software": software.installed(), **ends}


def unreachable(port: int, seconds: float, targets: Sequence[str]) -> list[str]:
    """The addresses that do not answer. A refusal is an answer: the way there is open."""
    with ThreadPoolExecutor(max_workers=16) as pool:
        answers = pool.map(lambda address: _answers(address, port, seconds), targets)
        return [address for address, answered in zip(targets, answers, strict=True) if not answered]


def _answers(address: str, port: int, seconds: float) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
        connection.settimeout(seconds)
        return connection.connect_ex((address, port)) in (0, errno.ECONNREFUSED)


def free_port(wanted: int = 0) -> int:
    """`wanted` if nobody listens there, 0 otherwise; for 0 some port that is free.

    It is none of those that the system gives to connections, mpirun's among them, so that it stays free until
    it is used; and a random one, as other jobs may choose at the same time.
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


def _find_this_package() -> None:
    """By its path, as this file: -I leaves out PYTHONPATH, so that it may not be importable here."""
    if "horovod" not in sys.modules:
        sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def _hold(name: str, size: int) -> None:
    _find_this_package()
    from horovod.runner import payload

    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        return  # whoever sent it is gone
    with payload.stored(name, data):
        _answer({"held": name})
        sys.stdin.buffer.read()


def _answer(value: Any) -> None:
    # Begins a line of its own: what was printed before may have ended without one.
    print(f"\n{MARK}{json.dumps(value)}", flush=True)


def answer_in(output: bytes) -> Any:
    """The answer among all that came over the connection; None for none. ValueError when it is no JSON."""
    for line in output.decode(errors="replace").splitlines():
        if line.startswith(MARK):
            try:
                return json.loads(line[len(MARK) :])
            except RecursionError:
                raise ValueError("nested too deeply") from None
    return None


def main(arguments: Sequence[str]) -> None:
    what, *rest = arguments
    if what == "describe":
        _answer(describe())
    elif what == "reach":
        _answer(unreachable(int(rest[0]), float(rest[1]), rest[2:]))
    elif what == "port":
        _answer(free_port(int(rest[0])))
    else:
        _hold(rest[0], int(rest[1]))


if __name__ == "__main__":
    main(sys.argv[1:])
