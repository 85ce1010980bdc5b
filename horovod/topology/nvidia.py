"""GPUs and how they are connected, as `nvidia-smi` tells."""

from __future__ import annotations

import re

from horovod.topology import pci, processors
from horovod.topology.facts import Gpu, GpuLink, Socket
from horovod.topology.machine import Answer, Machine

QUERY = ("nvidia-smi", "--query-gpu=index,name,memory.total,pci.bus_id", "--format=csv,noheader,nounits")
MATRIX = ("nvidia-smi", "topo", "-m")
STATUS = ("nvidia-smi", "nvlink", "--status")
# The words of its matrix for ways by PCIe: past one bridge or several, past the host bridge, between the
# host bridges of a NUMA node, and between NUMA nodes.
_BY_PCIE = {
    "PIX": "switch",
    "PXB": "switch",
    "PHB": "root",
    "NODE": "root",
    "SYS": "sockets",
    "SOC": "sockets",
}
_TERMINAL = re.compile(r"\x1b\[[\d;]*m")


def gpus(
    machine: Machine, sockets: tuple[Socket, ...]
) -> tuple[tuple[Gpu, ...], tuple[GpuLink, ...], list[str]]:
    """(GPUs, links between them, notes of what could not be asked). No nvidia-smi is no GPU, and no note."""
    answer = machine.run(QUERY)
    if answer.code is None:
        return (), (), []
    if answer.code != 0:
        return (), (), [f"nvidia-smi failed: {_first_line(answer)}"]
    try:
        found = gpus_in(answer.output)
    except ValueError:
        return (), (), [f"nvidia-smi says what is not understood: {answer.output.strip()[:80]!r}"]
    placed = tuple(_with_socket(machine, gpu, sockets) for gpu in found)
    if len(placed) < 2:
        return placed, (), []
    matrix, status = machine.run(MATRIX), machine.run(STATUS)
    if matrix.code != 0:
        return placed, (), [f"`nvidia-smi topo -m` failed: {_first_line(matrix)}"]
    speeds = status.output if status.code == 0 else ""  # not every GPU has NVLink to ask for
    return placed, links_in(matrix.output, speeds, placed), []


def gpus_in(table: str) -> tuple[Gpu, ...]:
    """Lines as "0, NVIDIA A100-SXM4-80GB, 81920, 00000000:07:00.0"; memory in MiB. ValueError for others."""
    found = []
    for line in filter(None, map(str.strip, table.splitlines())):
        index, *name, memory, bus = (part.strip() for part in line.split(","))
        size = int(memory) * 1024**2 if memory.isdecimal() else None  # "[N/A]": shares the processor's
        domain, rest = bus.lower().split(":", 1)
        found.append(Gpu(int(index), ", ".join(name), size, f"{domain[-4:]}:{rest}", None))
    return tuple(found)


def links_in(matrix: str, status: str, among: tuple[Gpu, ...]) -> tuple[GpuLink, ...]:
    """One link for each pair of GPUs, from `topo -m`, with NVLink's speed from `nvlink --status`."""
    speeds = _nvlink_speeds(status)
    ways = _ways_in(_TERMINAL.sub("", matrix))
    pairs = [(first, second) for first in among for second in among if first.index < second.index]
    found = [
        _link(first, second, ways.get((first.index, second.index), ""), speeds) for first, second in pairs
    ]
    return tuple(link for link in found if link is not None)


def _ways_in(matrix: str) -> dict[tuple[int, int], str]:
    """The words of the matrix: a line names the columns, and each GPU has a line behind its name."""
    ways: dict[tuple[int, int], str] = {}
    columns: list[int] = []
    for line in matrix.splitlines():
        words = line.split()
        named = [int(word[3:]) for word in words if re.fullmatch(r"GPU[0-9]{1,9}", word)]
        if not columns:
            columns = named
        elif named and words[0] == f"GPU{named[0]}":
            ways |= {(named[0], column): word for column, word in zip(columns, words[1:], strict=False)}
    return ways


def _link(first: Gpu, second: Gpu, way: str, speeds: dict[int, int]) -> GpuLink | None:
    nvlink = re.fullmatch(r"NV([0-9]{1,9})", way)
    if nvlink:
        speed = speeds.get(first.index)
        return GpuLink(first.index, second.index, "NVLink", int(nvlink[1]), speed)
    kind = _BY_PCIE.get(way)
    if kind is None:
        return None  # a word that this version does not know
    # Between NUMA nodes is not always between sockets: some sockets have several nodes.
    if kind == "sockets" and first.socket is not None and first.socket == second.socket:
        kind = "root"
    return GpuLink(first.index, second.index, kind)


def _nvlink_speeds(status: str) -> dict[int, int]:
    """Bytes per second of one link by GPU, where all of its active links are alike."""
    found: dict[int, set[int]] = {}
    gpu = -1
    for line in status.splitlines():
        head = re.match(r"\s*GPU ([0-9]{1,9}):", line)
        link = re.match(r"\s*Link [0-9]+: ([0-9]{1,9}(?:\.[0-9]{1,9})?) GB/s", line)
        gpu = int(head[1]) if head else gpu
        if link:
            found.setdefault(gpu, set()).add(round(float(link[1]) * 1e9))
    return {index: speeds.pop() for index, speeds in found.items() if len(speeds) == 1}


def _with_socket(machine: Machine, gpu: Gpu, sockets: tuple[Socket, ...]) -> Gpu:
    node = pci.numa_node(machine, gpu.pci_address)
    socket = processors.socket_of_node(machine, node, sockets)
    return Gpu(gpu.index, gpu.model, gpu.memory_bytes, gpu.pci_address, socket)


def _first_line(answer: Answer) -> str:
    said = (answer.errors.strip() or answer.output.strip() or "it said nothing").splitlines()[0]
    return f"{said} (exit code {answer.code})"
