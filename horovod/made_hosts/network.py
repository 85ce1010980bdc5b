"""The network between hosts: a switch in its own namespace, and a cable to each host."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from horovod.made_hosts import errors
from horovod.made_hosts.errors import HostsError
from horovod.made_hosts.system import NETWORK_NAMESPACES, processes_in, run, started, statistics_of

BRIDGE = "br0"
DEVICE = "eth0"  # a host's end of its cable
# A bucket of 256 KiB lets a fast sender's large segments pass whole. A queue of 50 ms is 6 MB at 1 Gbit/s,
# which loses nothing as long as TCP's window is smaller.
SHAPE = ("burst", "256k", "latency", "50ms")
# One address for each host, so that it is known which was used. A kernel without IPv6 has no such files.
NO_IPV6 = "for file in /proc/sys/net/ipv6/conf/*/disable_ipv6; do [ ! -e $file ] || echo 1 >$file; done"
PACKAGE = Path(__file__).resolve().parents[2]
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def seconds_of(rtt: str) -> float:
    """Return the seconds of a text such as "20ms"; 0 for "none". HostsError for other text."""
    if rtt == "none":
        return 0.0
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(us|ms|s)", rtt)
    if found is None or not 0.0 < float(found[1]) * SECONDS[found[2]] <= 10.0:
        raise errors.no_round_trip(got=rtt)
    return float(found[1]) * SECONDS[found[2]]


class Network:
    """Cables from hosts to one switch. Hosts are known here by the names of their network namespaces.

    `rtt`: seconds of a round trip. If 0, the switch is the kernel's bridge, else a process; see `delay`.
    """

    def __init__(self, switch: str, rtt: float = 0.0) -> None:
        self.switch = switch
        self.rtt = rtt

    def make(self) -> None:
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "set", "lo", "up")
        if not self.rtt:
            run("ip", "-n", self.switch, "link", "add", BRIDGE, "type", "bridge")
            run("ip", "-n", self.switch, "link", "set", BRIDGE, "up")

    def attach(self, host: str, port: str, address: str) -> None:
        """Make a host's namespace and its cable. address: with the prefix length, as 10.77.0.1/24."""
        run("ip", "netns", "add", host)
        run("ip", "-n", host, "link", "set", "lo", "up")
        run("ip", "netns", "exec", host, "sh", "-c", NO_IPV6)
        peer = ["peer", "name", port, "netns", self.switch]
        run("ip", "-n", host, "link", "add", DEVICE, "type", "veth", *peer)
        run("ip", "-n", host, "address", "add", address, "dev", DEVICE)
        run("ip", "-n", host, "link", "set", DEVICE, "up")
        if not self.rtt:
            run("ip", "-n", self.switch, "link", "set", port, "master", BRIDGE)
        run("ip", "-n", self.switch, "link", "set", port, "up")

    def switch_on(self, ports: Sequence[str], log: Path) -> None:
        """After all hosts are attached, start the process that delays frames, if any; it logs to `log`."""
        if not self.rtt:
            return
        program = [sys.executable, "-m", "horovod.made_hosts.delay", str(self.rtt / 2), *ports]
        process = started(self.switch, program, log, PACKAGE)
        time.sleep(0.2)
        if process.poll() is not None:
            raise errors.not_started(host="the switch", said=log.read_text(errors="replace").strip())

    def switch_seconds(self) -> float:
        """Return the processor seconds of the switch's process."""
        fields = map(statistics_of, processes_in(self.switch))
        return sum(int(each[11]) + int(each[12]) for each in fields) / os.sysconf("SC_CLK_TCK")

    def shape(self, host: str, port: str, rate: str) -> None:
        """Limit both directions of a host's cable. rate: as tc takes it ("1gbit", "100mbit"), or "none"."""
        limit = ["noqueue"] if rate == "none" else ["tbf", "rate", rate, *SHAPE]
        for namespace, device in ((host, DEVICE), (self.switch, port)):  # sent by it, received by it
            run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *limit)

    def plug(self, host: str, plugged: bool) -> None:
        """Plug a host's cable in or pull it out, so that its peers receive nothing."""
        run("ip", "-n", host, "link", "set", DEVICE, "up" if plugged else "down")

    def is_plugged(self, host: str) -> bool:
        return "UP" in _device(host)["flags"]

    def bytes(self, host: str) -> tuple[int, int]:
        """Return the bytes that a host has received and sent by its cable since `attach`, headers included.

        A large segment that the kernel passes on whole (up to 64 KiB) counts one header only.
        """
        counters = _device(host)["stats64"]
        return counters["rx"]["bytes"], counters["tx"]["bytes"]


def _device(host: str) -> dict[str, Any]:
    (link,) = json.loads(run("ip", "-n", host, "-j", "-s", "link", "show", DEVICE))
    return dict(link)


def remove(namespace: str) -> None:
    """Remove a namespace, if it exists, with the cables that end in it."""
    if (NETWORK_NAMESPACES / namespace).exists():
        try:
            run("ip", "netns", "del", namespace)
        except HostsError:
            if (NETWORK_NAMESPACES / namespace).exists():
                raise
