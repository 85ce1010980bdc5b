"""The places of the processes: this host, or several hosts made on this machine, with one process each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from on_hosts import jobs, links

from horovod.made_hosts import MadeHosts

PROGRAM = Path(__file__).resolve().parents[1] / "scaling.py"


class OneHost:
    """Processes of this machine: gloo sends over the loopback device, Horovod through shared memory."""

    kind, rate, device = "processes", "memory", "lo"

    def payload_rate(self, count: int, seconds: float) -> float:
        """Return bytes per second of a TCP connection while all `count` processes send to the next."""
        return links.loopback_rate(count, seconds)

    def run(self, count: int, task: dict[str, Any], limit: float) -> list[Any]:
        return jobs.run_here(count, task, limit, PROGRAM)


class OnHosts:
    """One process on each host, connected by cables of one rate."""

    kind, device = "hosts", jobs.DEVICE

    def __init__(self, hosts: MadeHosts, rate: str) -> None:
        self._hosts, self.rate = hosts, rate

    def payload_rate(self, count: int, seconds: float) -> float:
        return links.payload_rate(self._hosts, count, seconds)

    def run(self, count: int, task: dict[str, Any], limit: float) -> list[Any]:
        return jobs.run(self._hosts, count, "horovodrun", task, limit, PROGRAM)


Place = OneHost | OnHosts


@contextmanager
def opened(hosts: int, rate: str) -> Iterator[Place]:
    """Yield this host if `hosts` is 0, otherwise that many hosts, which exist as long as the block."""
    if not hosts:
        yield OneHost()
        return
    with MadeHosts(hosts, rate=rate) as made:
        yield OnHosts(made, rate)
