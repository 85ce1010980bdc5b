"""The drawing for a terminal: a box for each host with its devices by socket, and the networks between."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from horovod.topology import words
from horovod.topology.facts import Gpu, GpuLink, Host, Nic, Ranks, Socket
from horovod.topology.routes import Route, meaning

WIDTH = 88  # of a host's box; networks are drawn to its right
_MOST_NETWORKS = 4  # drawn; the text names all
_MOST_IN_MATRIX = 8
_PLAIN = str.maketrans("─│┌┐└┘├┤┬┴┼…", "-|++++++++++"[:11] + "~")


@dataclass(frozen=True)
class _Row:
    """A line inside a box. `networks`: of its interface."""

    text: str
    networks: frozenset[str] = frozenset()


def drawing(hosts: Sequence[Host], ranks: Ranks | None = None) -> str:
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
    return "\n".join(lines) + "\n"


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
    rest = [_gpu_row(gpu) for gpu in host.gpus if gpu.socket is None]
    rest += [_nic_row(group, nic) for nic in host.nics if nic.socket is None]
    if rest:
        yield from (_Row(""), *rest)
    yield from (_Row(text) for text in _gpu_connections(host))
    yield from (_Row(note) for note in host.notes)


def _socket_text(socket: Socket, has_others: bool) -> str:
    is_unknown = socket.number is None
    name = "sockets (the machine does not tell them apart)" if is_unknown else f"socket {socket.number}"
    text = f"{name}: {words.processor(socket)}, {words.cores(socket)}"
    return f"{text}, {words.memory(socket.memory_bytes)}" if has_others and socket.memory_bytes else text


_Branch = tuple[_Row, list[_Row]]  # a device, and devices below it


def _hanging_on(group: words.Group, socket: int | None) -> list[_Branch]:
    """Switches with their GPUs, other GPUs, and interfaces of a socket."""
    host = group.host
    if socket is None:
        return []
    branches: list[_Branch] = []
    for together in words.switches(host):
        gpus = [gpu for gpu in host.gpus if gpu.index in together]
        if gpus[0].socket == socket:
            branches.append((_Row("switch"), [_gpu_row(gpu) for gpu in gpus]))
    on_switch = {index for together in words.switches(host) for index in together}
    rest = (gpu for gpu in host.gpus if gpu.socket == socket and gpu.index not in on_switch)
    branches += [(_gpu_row(gpu), []) for gpu in rest]
    return branches + [(_nic_row(group, nic), []) for nic in host.nics if nic.socket == socket]


def _tree(branches: Sequence[_Branch]) -> Iterator[_Row]:
    for number, (row, leaves) in enumerate(branches):
        is_last = number == len(branches) - 1
        yield _Row(f"{'└' if is_last else '├'}─PCIe─ {row.text}", row.networks)
        for leaf in leaves:
            corner = "└" if leaf is leaves[-1] else "├"
            yield _Row(f"{' ' if is_last else '│'}      {corner}─PCIe─ {leaf.text}")


def _gpu_row(gpu: Gpu) -> _Row:
    return _Row(f"GPU {gpu.index}: {words.gpu_model(gpu)}")


def _nic_row(group: words.Group, nic: Nic) -> _Row:
    parts = [words.speed(nic), group.addresses(nic), words.nic_model(nic)]
    return _Row(f"{nic.name}: {', '.join(filter(None, parts))}", frozenset(nic.networks))


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


# ---- the effect on allreduces: figures of the links, routes and reasons ----------------------------------


def explanation(ranks: Ranks, routes: Sequence[Route]) -> str:
    """Links, a table of routes by size and compression, and a paragraph for each of these routes."""
    parts = ["\n".join(links_lines(ranks)), "\n".join(_table(ranks, routes))]
    names = dict.fromkeys(route.name for route in routes)
    width = max(map(len, names)) + 2
    for name in names:
        wrapped = textwrap.wrap(meaning(name), 98 - width)
        parts.append("\n".join(f"  {name if not n else '':{width}}{line}" for n, line in enumerate(wrapped)))
    return "\n\n".join(parts) + "\n"


def links_lines(ranks: Ranks) -> list[str]:
    """The cost of moving bytes, in common units."""
    links = ranks.links
    how = "measured when the job started" if links.is_measured else "assumed, as nothing was measured"
    lines = [f"Links between {words.number_of(len(ranks.hosts), 'rank')} ({how}):"]
    latency, speed = links.memory_latency * 1e6, 1e-9 / links.memory_byte
    after = f"about {latency:.0f} us"
    lines.append(f"  memory   {speed:.1f} GB/s; another rank of the host notices after {after}")
    if ranks.spans_hosts:
        latency, rate = links.network_latency * 1e6, words.rate(8 / links.network_byte)
        lines.append(f"  network  {rate} in each direction; another host notices after {latency:.0f} us")
    return lines


def _table(ranks: Ranks, routes: Sequence[Route]) -> list[str]:
    lines = ["Routes of allreduces of float32:", ""]
    row = "  {:>7}  {:<11}  {:<20}  {:>10}  {}"
    lines.append(row.format("size", "compression", "route", "estimate", "instead of").rstrip())
    for route in routes:
        other = route.next_best()
        instead = f"{other[0]}, {words.duration(other[1])}" if other else ""
        estimate = words.duration(route.milliseconds) if route.estimates else ""
        used = route.compression if route.is_encoded or route.compression == "none" else "none (exact)"
        lines.append(row.format(words.size(route.size), used, route.name, estimate, instead).rstrip())
    if len(ranks.hosts) == 1:
        return lines
    given = dict.fromkeys(route.reason for route in routes)
    reasons = [f"Not by cost: {why}." for why in given if not why.startswith("estimated:")]
    cheapest = "Each is the cheapest possible one here, by the figures above."
    return [*lines, "", *(reasons or [cheapest])]
