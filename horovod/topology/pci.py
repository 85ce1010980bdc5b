"""Devices of the PCI bus: their names, and their NUMA nodes."""

from __future__ import annotations

import re

from horovod.topology.machine import Machine

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NAMES = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids", "var/lib/pciutils/pci.ids")


def numa_node(machine: Machine, address: str) -> int | None:
    number = machine.number(f"sys/bus/pci/devices/{address}/numa_node")
    return number if number is not None and number >= 0 else None  # -1: unknown to the firmware


def model(machine: Machine, address: str) -> str | None:
    """The device's name in this machine's list of PCI ids, if both exist."""
    folder = f"sys/bus/pci/devices/{address}"
    vendor, device = machine.text(f"{folder}/vendor"), machine.text(f"{folder}/device")
    listed = next(filter(None, map(machine.text, _NAMES)), None)
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
