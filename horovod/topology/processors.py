"""Sockets, cores and memory, from /proc/cpuinfo, /sys/devices/system and control groups."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from horovod.topology.facts import Socket
from horovod.topology.machine import Machine, numbers_in

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
# ARM's /proc/cpuinfo has numbers instead of names: (implementer, part). From Arm's and the makers' manuals.
_ARM = {
    (0x41, 0xD03): "ARM Cortex-A53",
    (0x41, 0xD05): "ARM Cortex-A55",
    (0x41, 0xD07): "ARM Cortex-A57",
    (0x41, 0xD08): "ARM Cortex-A72",
    (0x41, 0xD0B): "ARM Cortex-A76",
    (0x41, 0xD0C): "ARM Neoverse-N1",
    (0x41, 0xD40): "ARM Neoverse-V1",
    (0x41, 0xD49): "ARM Neoverse-N2",
    (0x41, 0xD4F): "ARM Neoverse-V2",
    (0x46, 0x001): "Fujitsu A64FX",
    (0x48, 0xD01): "HiSilicon TaiShan v110",
    (0xC0, 0xAC3): "Ampere-1",
}


def sockets(machine: Machine) -> tuple[Socket, ...]:
    """The sockets by number; one without a number if the machine does not distinguish them."""
    records = _cpuinfo(machine)
    cpus = numbers_in(machine.text(f"{CPU}/online") or "") or sorted(records)
    by_socket: dict[int | None, list[int]] = {}
    for cpu in cpus:
        by_socket.setdefault(_socket_of_cpu(machine, cpu, records), []).append(cpu)
    if None in by_socket:  # known for some only: treat as unknown
        by_socket = {None: cpus}
    memory = _memory_by_socket(machine, by_socket)
    return tuple(
        Socket(
            number,
            _model(records.get(members[0], {})),
            _cores(machine, members, records),
            len(members),
            memory.get(number),
        )
        for number, members in sorted(by_socket.items(), key=lambda item: item[0] or 0)
    )


def socket_of_node(machine: Machine, node: int | None, known: tuple[Socket, ...]) -> int | None:
    """The socket of a NUMA node, or None. PCI devices name nodes."""
    if len(known) == 1:
        return known[0].number
    cpus = numbers_in(machine.text(f"{NODE}/node{node}/cpulist") or "") if node is not None else []
    records = _cpuinfo(machine)
    owners = {_socket_of_cpu(machine, cpu, records) for cpu in cpus}
    return owners.pop() if len(owners) == 1 else None


def memory_bytes(machine: Machine) -> int | None:
    return _kilobytes(machine.text("proc/meminfo") or "")


def usable_cores(machine: Machine) -> int:
    """Hardware threads that this process may use: its affinity, or less by its control group's quota."""
    quota = _quota(machine)
    allowed = len(machine.affinity)
    return allowed if quota is None else max(1, min(allowed, int(quota)))


def _cpuinfo(machine: Machine) -> dict[int, dict[str, str]]:
    """Fields by processor. On some ARM machines one model name follows all processors."""
    records: dict[int, dict[str, str]] = {}
    for block in re.split(r"\n\s*\n", machine.text("proc/cpuinfo") or ""):
        pairs = (line.partition(":") for line in block.splitlines())
        fields = {key.strip(): value.strip() for key, _, value in pairs}
        if fields.get("processor", "").isdigit():
            records[int(fields["processor"])] = fields
    return records


def _socket_of_cpu(machine: Machine, cpu: int, records: Mapping[int, dict[str, str]]) -> int | None:
    number = machine.number(f"{CPU}/cpu{cpu}/topology/physical_package_id")
    if number is None:
        text = records.get(cpu, {}).get("physical id", "")
        number = int(text) if text.isdigit() else None
    return number if number is not None and number >= 0 else None  # -1: unknown to the firmware


def _cores(machine: Machine, cpus: list[int], records: Mapping[int, dict[str, str]]) -> int | None:
    together = set()
    for cpu in cpus:
        folder = f"{CPU}/cpu{cpu}/topology"
        same_core = machine.text(f"{folder}/core_cpus_list") or machine.text(f"{folder}/thread_siblings_list")
        together.add(same_core or records.get(cpu, {}).get("core id"))
    return None if None in together else len(together)


def _model(fields: Mapping[str, str]) -> str | None:
    named = fields.get("model name") or fields.get("cpu")  # "cpu": on POWER
    if named:
        return named
    try:
        maker, part = int(fields["CPU implementer"], 16), int(fields["CPU part"], 16)
    except (KeyError, ValueError):
        return None
    return _ARM.get((maker, part), f"ARM, implementer {maker:#04x}, part {part:#05x}")


def _memory_by_socket(machine: Machine, by_socket: Mapping[int | None, list[int]]) -> dict[int | None, int]:
    """The memory of each socket that does not share its NUMA nodes."""
    owner = {cpu: number for number, members in by_socket.items() for cpu in members}
    found: dict[int | None, int] = {}
    unknown: set[int | None] = set()
    for name in machine.names_in(NODE):
        if not re.fullmatch(r"node\d+", name):
            continue
        cpus = numbers_in(machine.text(f"{NODE}/{name}/cpulist") or "")
        owners = {owner[cpu] for cpu in cpus if cpu in owner}
        size = _kilobytes(machine.text(f"{NODE}/{name}/meminfo") or "")
        if len(owners) == 1 and size is not None:
            (number,) = owners
            found[number] = found.get(number, 0) + size
        else:
            unknown |= owners
    return {number: size for number, size in found.items() if number not in unknown}


def _kilobytes(meminfo: str) -> int | None:
    match = re.search(r"MemTotal:\s+(\d+) kB", meminfo)
    return int(match[1]) * 1024 if match else None


def _quota(machine: Machine) -> float | None:
    """The number of processors that control groups allow: the minimum over our group and its parents."""
    quotas = []
    for line in (machine.text("proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        group = PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            if not controllers:  # version 2: "quota period"
                words = (machine.text(f"sys/fs/cgroup/{folder}/cpu.max") or "").split()
            elif "cpu" in controllers.split(","):
                where = f"sys/fs/cgroup/{controllers}/{folder}/cpu.cfs"
                words = [machine.text(f"{where}_{what}_us") or "" for what in ("quota", "period")]
            else:
                break
            if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
                quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)
