"""The source of a machine's facts: files, interfaces, and programs. Tests make one up."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from horovod.topology import errors
from horovod.topology.nvml import Nvml, opened

_COMMAND_SECONDS = 30.0
_PCI_IDS = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids", "var/lib/pciutils/pci.ids")
MOST_NUMBERS = 1 << 16  # in a list: more than any kernel has processors


@dataclass(frozen=True)
class Interface:
    """A network interface in this process' network namespace."""

    hardware_address: str  # "02:fc:00:00:00:01", "" if it has none
    addresses: tuple[str, ...]  # with prefix; without link-local ones


def run_command(words: Sequence[str]) -> str:
    """Return a command's output in the C locale; "" if it cannot be run, or takes too long."""
    try:
        return subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            timeout=_COMMAND_SECONDS,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


@dataclass(frozen=True)
class Machine:
    """A machine. `root` is the folder that contains /proc, /sys and /usr."""

    root: Path = Path("/")
    name: str = field(default_factory=socket.gethostname)
    affinity: frozenset[int] = field(default_factory=lambda: frozenset(os.sched_getaffinity(0)))
    interfaces: Mapping[str, Interface] = field(default_factory=lambda: own_interfaces())
    run: Callable[[Sequence[str]], str] = run_command
    nvml: Callable[[], AbstractContextManager[Nvml | None]] = opened

    def text(self, path: str) -> str | None:
        """A file's text, stripped; None if it is missing, empty, or unreadable."""
        try:
            return (self.root / path).read_text(errors="replace").strip() or None
        except OSError:  # many files of /sys answer EINVAL if the question has no meaning
            return None

    def number(self, path: str) -> int | None:
        try:
            return int(self.text(path) or "")
        except ValueError:
            return None

    def names_in(self, path: str) -> list[str]:
        folder = self.root / path
        return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []

    def target(self, path: str) -> Path | None:
        """The target of a link in /sys, or None."""
        link = self.root / path
        return Path(os.path.realpath(link)) if link.exists() else None

    def numa_node(self, pci_address: str) -> int | None:
        number = self.number(f"sys/bus/pci/devices/{pci_address}/numa_node")
        return number if number is not None and number >= 0 else None  # -1: unknown to the firmware

    def pci_name(self, pci_address: str) -> str | None:
        """The device's name in this machine's list of PCI ids, if both exist."""
        folder = f"sys/bus/pci/devices/{pci_address}"
        vendor, device = self.text(f"{folder}/vendor"), self.text(f"{folder}/device")
        listed = next(filter(None, map(self.text, _PCI_IDS)), None)
        if vendor is None or device is None or listed is None:
            return None
        return name_in(listed, vendor.removeprefix("0x"), device.removeprefix("0x"))


def name_in(listed: str, vendor: str, device: str) -> str | None:
    """Maker and device in a pci.ids file: "15b3  Mellanox", and below it "\\t1017  MT27800 ..."."""
    maker = re.search(rf"^{vendor}[ \t]+(.+)$", listed, re.MULTILINE)
    if maker is None:
        return None
    rest = listed[maker.end() :]
    end = re.search(r"^[^\t#\n]", rest, re.MULTILINE)
    own = rest[: end.start()] if end else rest
    found = re.search(rf"^\t{device}[ \t]+(.+)$", own, re.MULTILINE)
    return f"{maker[1].strip()} {found[1].strip()}" if found else None


def own_interfaces() -> dict[str, Interface]:
    found = {}
    for name, entries in psutil.net_if_addrs().items():
        hardware = next((entry.address for entry in entries if entry.family == psutil.AF_LINK), "")
        inet = [entry for entry in entries if entry.family in (socket.AF_INET, socket.AF_INET6)]
        addresses = [with_prefix(entry.address, entry.netmask) for entry in inet]
        found[name] = Interface(hardware.lower(), tuple(filter(None, addresses)))
    return found


def with_prefix(address: str, netmask: str | None) -> str:
    """ "10.0.0.1/24"; "" for a link-local address."""
    own = ipaddress.ip_address(address.partition("%")[0])
    if own.is_link_local:
        return ""
    if netmask is None:
        return f"{own}/{own.max_prefixlen}"
    return f"{own}/{bin(int(ipaddress.ip_address(netmask))).count('1')}"


def numbers_in(text: str) -> list[int]:
    """Parse the kernel's lists of numbers: "0-3,8" is 0, 1, 2, 3 and 8. ValueError for another text."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        begin, end = int(first), int(last or first) + 1
        if end - begin > MOST_NUMBERS - len(numbers):
            raise errors.too_many_numbers(got=text[:80], most=MOST_NUMBERS)
        numbers.extend(range(begin, end))
    return numbers
