"""The drawing for a terminal: a box for each host with its devices by socket, and the networks between."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from horovod.topology import words
from horovod.topology.facts import Gpu, GpuLink, Host, Nic, Ranks, Socket

WIDTH = 88  # of a host's box; networks are drawn to its right
_MOST_NETWORKS = 4  # drawn; the text names all
_MOST_IN_MATRIX = 8
_PLAIN = str.maketrans("─│┌┐└┘├┤┬┴┼…", "-|++++++++++"[:11] + "~")


@dataclass(frozen=True)
class _Row:
    """A line inside a box. `networks`: of its interface."""

    text: str
    networks: frozenset[str] = frozenset()


def drawing(hosts: Sequence[Host], ranks: Ranks | None = None, *, ascii_only: bool = False) -> str:
    """The hosts, and the ranks on them. At most 100 columns wide."""
    shared = words.shared_networks(hosts)
    drawn = list(shared)[:_MOST_NETWORKS]
    lines: list[str] = []
    ends: dict[str, list[int]] = {network: [] for network in drawn}
    for group in words.groups(hosts, ranks):
        lines.append(_edge("┌", f" {group.title()} ", f" {group.rank_text()} ", "┐"))
        for row in _host_rows(group):
            for network in row.networks & ends.keys():
                ends[network].append(len(lines))
            lines.append(f"│ {_cut(row.text, WIDTH - 4):{WIDTH - 4}} │")
        lines.append(_edge("└", "", "", "┘"))
    lines = _with_cables(lines, [ends[network] for network in drawn])
    for network, members in shared.items():
        names = ", ".join(f"{hosts[number].name} {nic}" for number, nic in members)
        lines.append(_cut(f"network {network}: {names}", 100))
    text = "\n".join(lines) + "\n"
    return plain(text) if ascii_only else text


def plain(text: str) -> str:
    """The drawing in ASCII, with the same number of columns."""
    return text.translate(_PLAIN).encode("ascii", "replace").decode()


def _host_rows(group: words.Group) -> Iterator[_Row]:
    host = group.host
    total = "unknown" if host.memory_bytes is None else words.memory(host.memory_bytes)
    yield _Row(f"memory {total}, usable by a job: {words.number_of(host.usable_cores, 'thread')}")
    for socket in host.sockets:
        yield _Row(_socket_text(socket, len(host.sockets) > 1))
        yield from _tree(_hanging_on(group, socket.number))
    rest = list(_unplaced(group))
    if rest:
        yield _Row("")
        yield from (_Row(text, networks) for text, networks in rest)
    yield from (_Row(text) for text in _gpu_connections(host))
    yield from (_Row(note) for note in host.notes)


def _socket_text(socket: Socket, has_others: bool) -> str:
    name = (
        "sockets (the machine does not tell them apart)"
        if socket.number is None
        else (f"socket {socket.number}")
    )
    text = f"{name}: {words.processor(socket)}, {words.cores(socket)}"
    return f"{text}, {words.memory(socket.memory_bytes)}" if has_others and socket.memory_bytes else text


_Branch = tuple[str, frozenset[str], list[str]]  # text, networks of its interface, devices below it


def _hanging_on(group: words.Group, socket: int | None) -> list[_Branch]:
    """Switches with their GPUs, other GPUs, and interfaces of a socket."""
    host = group.host
    if socket is None:
        return []
    branches: list[_Branch] = []
    for together in words.switches(host):
        gpus = [gpu for gpu in host.gpus if gpu.index in together]
        if gpus[0].socket == socket:
            branches.append(("switch", frozenset(), [_gpu_text(gpu) for gpu in gpus]))
    on_switch = {index for together in words.switches(host) for index in together}
    for gpu in host.gpus:
        if gpu.socket == socket and gpu.index not in on_switch:
            branches.append((_gpu_text(gpu), frozenset(), []))
    branches += [(*_nic_text(group, nic), []) for nic in host.nics if nic.socket == socket]
    return branches


def _tree(branches: Sequence[_Branch]) -> Iterator[_Row]:
    for number, (text, networks, leaves) in enumerate(branches):
        is_last = number == len(branches) - 1
        yield _Row(f"{'└' if is_last else '├'}─PCIe─ {text}", networks)
        for position, leaf in enumerate(leaves):
            corner = "└" if position == len(leaves) - 1 else "├"
            yield _Row(f"{' ' if is_last else '│'}      {corner}─PCIe─ {leaf}")


def _unplaced(group: words.Group) -> Iterator[tuple[str, frozenset[str]]]:
    """Devices on no socket, or on an unknown one."""
    host = group.host
    for gpu in host.gpus:
        if gpu.socket is None:
            yield _gpu_text(gpu), frozenset()
    for nic in host.nics:
        if nic.socket is None:
            yield _nic_text(group, nic)


def _gpu_text(gpu: Gpu) -> str:
    size = f", {words.memory(gpu.memory_bytes)}" if gpu.memory_bytes is not None else ""
    return f"GPU {gpu.index}: {gpu.model}{size}"


def _nic_text(group: words.Group, nic: Nic) -> tuple[str, frozenset[str]]:
    parts = [words.speed(nic), group.addresses(nic), words.nic_model(nic)]
    networks = frozenset(str(ipaddress.ip_interface(text).network) for text in nic.addresses)
    return f"{nic.name}: {', '.join(filter(None, parts))}", networks


def _gpu_connections(host: Host) -> Iterator[str]:
    """A sentence if all pairs are alike or few, else a table."""
    sentences = words.connections(host)
    if not sentences:
        return
    yield ""
    if len(sentences) == 1 or len(host.gpus) > _MOST_IN_MATRIX:
        yield from sentences
        return
    ways = {(link.first, link.second): _short(link) for link in host.gpu_links}
    yield "       " + "".join(f"{f'GPU {gpu.index}':>9}" for gpu in host.gpus)
    for gpu in host.gpus:
        cells = [ways.get((min(gpu.index, o.index), max(gpu.index, o.index)), "-") for o in host.gpus]
        yield f"{f'GPU {gpu.index}':7}" + "".join(f"{cell:>9}" for cell in cells)
    used = {link.kind for link in host.gpu_links}
    if "NVLink" in used:
        yield "NVn: n links of NVLink"
    yield from (f"{kind}: PCIe, {way}" for kind, way in words.PCIE_WAYS.items() if kind in used)


def _short(link: GpuLink) -> str:
    return f"NV{link.links}" if link.kind == "NVLink" else link.kind


def _edge(left: str, title: str, remark: str, right: str) -> str:
    title = _cut(title, WIDTH - len(remark) - 6)
    middle = WIDTH - 4 - len(title) - len(remark)
    return f"{left}─{title}{'─' * middle}{remark}─{right}"


def _with_cables(lines: list[str], networks: list[list[int]]) -> list[str]:
    """The lines with a vertical line for each network right of the boxes, joined to its interfaces' rows."""
    shown = [rows for rows in networks if len(rows) > 1]
    grid = [list(line.ljust(WIDTH + 3 * len(shown))) for line in lines]
    for number, rows in enumerate(shown):
        column = WIDTH + 2 + 3 * number
        for row in range(rows[0], rows[-1] + 1):
            grid[row][column] = "┼" if grid[row][column] == "─" else "│"
            if row in rows:
                corner = "┐" if row == rows[0] else "┘" if row == rows[-1] else "┤"
                _draw_cable(grid[row], column, corner)
    return ["".join(row).rstrip() for row in grid]


def _draw_cable(row: list[str], column: int, corner: str) -> None:
    row[WIDTH - 1] = "├"
    for at in range(WIDTH, column):
        row[at] = {"│": "┼", "┐": "┬", "┘": "┴", "┤": "┼"}.get(row[at], "─" if row[at] == " " else row[at])
    row[column] = corner


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
