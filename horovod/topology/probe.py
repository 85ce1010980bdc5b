"""Detection of a host's hardware: sockets, memory, GPUs and their links, network interfaces."""

from __future__ import annotations

import ipaddress
import re

from horovod.topology import nvidia, processors
from horovod.topology.facts import Host, Nic, Socket
from horovod.topology.machine import Interface, Machine

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def probe(machine: Machine | None = None) -> Host:
    """The facts of a machine, by default of this process' machine."""
    machine = machine or Machine()
    sockets = processors.sockets(machine)
    gpus, links, notes = nvidia.gpus(machine, sockets)
    return Host(
        machine.name,
        sockets,
        processors.memory_bytes(machine),
        processors.usable_cores(machine),
        gpus,
        links,
        nics(machine, sockets),
        tuple(notes),
    )


def nics(machine: Machine, sockets: tuple[Socket, ...]) -> tuple[Nic, ...]:
    """All interfaces except the loopback, and virtual ones without an address, which carry nothing."""
    found = []
    for name, interface in sorted(machine.interfaces.items()):
        if name == "lo" or _is_loopback(interface):
            continue
        nic = _nic(machine, name, interface, sockets)
        if nic.driver is not None or nic.addresses:
            found.append(nic)
    return tuple(found)


def _nic(machine: Machine, name: str, interface: Interface, sockets: tuple[Socket, ...]) -> Nic:
    folder = f"sys/class/net/{name}"
    # /sys may show the interfaces of another network namespace, which can have the same names.
    own_address = (machine.text(f"{folder}/address") or "").lower()
    if not interface.hardware_address or own_address != interface.hardware_address:
        return Nic(name, None, None, None, interface.addresses, None)
    address = _pci_address(machine, folder)
    driver = machine.target(f"{folder}/device/driver")
    node = machine.numa_node(address) if address else None
    return Nic(
        name,
        machine.pci_name(address) if address else None,
        driver.name if driver else None,
        _speed(machine, folder),
        interface.addresses,
        processors.socket_of_node(machine, node, sockets) if address else None,
        is_rdma=bool(machine.names_in(f"{folder}/device/infiniband")),
        is_up=machine.text(f"{folder}/operstate") not in ("down", "lowerlayerdown", "notpresent"),
    )


def _is_loopback(interface: Interface) -> bool:
    own = [ipaddress.ip_interface(text) for text in interface.addresses]
    return bool(own) and all(address.is_loopback for address in own)


def _pci_address(machine: Machine, folder: str) -> str | None:
    """The PCI address of the device, or of the device that contains it (virtio)."""
    device = machine.target(f"{folder}/device")
    parts = device.relative_to(machine.root.resolve()).parts if device else ()
    return next((part for part in reversed(parts) if _PCI_ADDRESS.fullmatch(part)), None)


def _speed(machine: Machine, folder: str) -> int | None:
    """Bits per second. A virtual interface's number means nothing, but a bond adds up its members'."""
    is_real = bool(machine.names_in(f"{folder}/device") or machine.names_in(f"{folder}/bonding"))
    megabits = machine.number(f"{folder}/speed")
    if is_real and megabits is not None and megabits > 0:
        return megabits * 1_000_000
    ports = machine.names_in(f"{folder}/device/infiniband")
    if len(ports) != 1:
        return None
    rate = machine.text(f"{folder}/device/infiniband/{ports[0]}/ports/1/rate") or ""  # "100 Gb/sec (4X EDR)"
    match = re.match(r"([\d.]+) Gb/sec", rate)
    return int(float(match[1]) * 1e9) if match else None
