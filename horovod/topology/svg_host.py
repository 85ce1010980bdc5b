"""The inside of a host in the SVG drawing: GPUs on top, then sockets, then network interfaces."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from horovod.drawing.svg import SMALL, cut, width_of, wrapped
from horovod.topology import words
from horovod.topology.canvas import LINE, Canvas
from horovod.topology.facts import Gpu, GpuLink, Nic, Socket
from horovod.topology.language import Language

_GAP = 20.0  # between columns
_GPU_HEIGHT = 28.0
_BETWEEN_GPUS = 4.0
_SWITCH_HEIGHT = 20.0
_WIRE = 10.0  # the shortest wire
_LABELLED_WIRE = 20.0
_MOST_GPUS_DRAWN = 8  # in a column
_TREE = 20.0  # space for the wire from a socket to its interfaces
_PAD = 8.0


class HostDrawing:
    """Draws into `canvas`, from `x` on. `exits`: (interface, y, x) at which interfaces leave the host."""

    def __init__(self, canvas: Canvas, group: words.Group, x: float, width: float) -> None:
        self.canvas = canvas
        self.group = group
        self.host = group.host
        self.x = x
        self.width = width
        self.exits: list[tuple[Nic, float, float]] = []
        self._gpus: dict[int, tuple[float, float]] = {}  # index -> middle, top

    def draw(self, y: float) -> float:
        """Draw the host. Returns its lower end."""
        crowd = max(Counter(gpu.socket for gpu in self.host.gpus).values(), default=0)
        nvlinks = [link for link in self.host.gpu_links if link.kind == "NVLink"]
        y += _PAD + (_room_above(nvlinks) if crowd <= _MOST_GPUS_DRAWN else 0)
        sockets = self.host.sockets
        numbers = {socket.number for socket in sockets} - {None}
        rest = [gpu for gpu in self.host.gpus if gpu.socket not in numbers]
        if rest:
            self._gpu_row(rest, self.x, self.width, y)
            y += _GPU_HEIGHT + _PAD
        for first in range(0, len(sockets), 2):
            y = self._sockets(sockets[first : first + 2], y) + _PAD
        for nics in _alike([nic for nic in self.host.nics if nic.socket not in numbers]):
            y = self._nic(nics, (self.x, self.width), y, to_left=False) + 6
        self._nvlink(nvlinks)
        texts = [*_models(self.host.gpus), *words.connections(self.host, self.canvas.say), *self.host.notes]
        for text in texts:
            y = self.canvas.lines(self.x, y, wrapped(text, self.width, 4))
        return y + _PAD

    def _sockets(self, row: Sequence[Socket], y: float) -> float:
        """Draw one or two sockets side by side, each with its devices. Returns the lower end."""
        width = (self.width - _GAP * (len(row) - 1)) / len(row)
        columns = [(self.x + number * (width + _GAP), width) for number in range(len(row))]
        gpus = [[gpu for gpu in self.host.gpus if _is_on(gpu.socket, socket)] for socket in row]
        top = y
        if any(gpus):
            has_switch = any(self._switches(part) for part in gpus)
            top += _GPU_HEIGHT + _WIRE + (_SWITCH_HEIGHT + _WIRE) * has_switch + _LABELLED_WIRE
        for part, column in zip(gpus, columns, strict=True):
            if part:
                self._gpu_tree(part, column, y, top)
        is_one = len(self.host.sockets) == 1
        texts = [_described(socket, is_one, width - 16, self.canvas.say) for socket in row]
        height = 14 + LINE * max(map(len, texts))
        if len(row) > 1:
            middle = top + height / 2
            self.canvas.path("between", (columns[0][0] + width, middle), (columns[1][0], middle))
        bottoms = []
        for number, socket in enumerate(row):
            x = columns[number][0]
            self.canvas.box(x, top, width, height, "socket")
            self.canvas.text(x + 8, top + 19, texts[number][0], "ink-bold")
            self.canvas.lines(x + 8, top + 7 + LINE, texts[number][1:])
            to_left = len(row) > 1 and number == 0
            bottoms.append(self._nic_tree(socket, columns[number], top + height, to_left))
        return max(bottoms)

    def _switches(self, gpus: Sequence[Gpu]) -> list[list[int]]:
        """PCIe switches whose GPUs are all among these."""
        among = {gpu.index for gpu in gpus}
        return [together for together in words.switches(self.host) if among.issuperset(together)]

    def _gpu_tree(
        self, gpus: Sequence[Gpu], column: tuple[float, float], y: float, socket_top: float
    ) -> None:
        """Draw GPUs in a row, and wires from the socket up to them, some through switches."""
        middle, bus = column[0] + column[1] / 2, socket_top - _LABELLED_WIRE
        self.canvas.path("pcie", (middle, socket_top), (middle, bus))
        self.canvas.text(middle + 6, socket_top - 5, "PCIe", "quiet")
        width = self._gpu_row(gpus, *column, y)
        if len(gpus) > _MOST_GPUS_DRAWN:
            self.canvas.path("pcie", (middle, bus), (middle, y + _GPU_HEIGHT))
            return
        switched = self._switches(gpus)
        ends = [self._gpus[gpu.index][0] for gpu in gpus if gpu.index not in set(itertools.chain(*switched))]
        for end in ends:
            self.canvas.path("pcie", (end, bus), (end, y + _GPU_HEIGHT))
        for together in switched:
            middles = [self._gpus[index][0] for index in together]
            left, right = min(middles) - width / 2, max(middles) + width / 2
            switch_top = y + _GPU_HEIGHT + _WIRE
            for each in middles:
                self.canvas.path("pcie", (each, y + _GPU_HEIGHT), (each, switch_top))
            self.canvas.box(left, switch_top, right - left, _SWITCH_HEIGHT, "socket", 4)
            label = cut(self.canvas.say("switch"), right - left - 4)
            self.canvas.centred((left + right) / 2, switch_top + 14.5, label, "quiet")
            ends.append((left + right) / 2)
            self.canvas.path("pcie", (ends[-1], switch_top + _SWITCH_HEIGHT), (ends[-1], bus))
        self.canvas.path("pcie", (min([middle, *ends]), bus), (max([middle, *ends]), bus))

    def _gpu_row(self, gpus: Sequence[Gpu], x: float, width: float, y: float) -> float:
        """Draw boxes with the numbers of GPUs. Returns the width of one."""
        middle = x + width / 2
        if len(gpus) > _MOST_GPUS_DRAWN:
            indices = words.numbers(gpu.index for gpu in gpus)
            text = self.canvas.say("{count} GPUs: {numbers}", count=len(gpus), numbers=indices)
            self.canvas.labelled(x, y, width, _GPU_HEIGHT, "gpu", cut(text, width - 8, SMALL, True), 6)
            return width
        each = min(64.0, (width - _BETWEEN_GPUS * (len(gpus) - 1)) / len(gpus))
        left = middle - (each * len(gpus) + _BETWEEN_GPUS * (len(gpus) - 1)) / 2
        for number, gpu in enumerate(gpus):
            at = left + number * (each + _BETWEEN_GPUS)
            self._gpus[gpu.index] = (at + each / 2, y)
            name = f"GPU {gpu.index}"
            label = name if width_of(name, SMALL, True) < each else str(gpu.index)
            self.canvas.labelled(at, y, each, _GPU_HEIGHT, "gpu", label, 4)
        return each

    def _nvlink(self, links: Sequence[GpuLink]) -> None:
        """Draw a bar if all GPUs have the same links to all others, else an arc for each pair."""
        drawn = [link for link in links if {link.first, link.second} <= self._gpus.keys()]
        if not drawn or len({top for _, top in self._gpus.values()}) > 1:
            return  # the text describes the links instead
        top = next(iter(self._gpus.values()))[1]
        middles = sorted(self._gpus[index][0] for link in drawn for index in (link.first, link.second))
        if _is_complete(links):
            bar = top - 12
            self.canvas.path("nvlink", (middles[0], bar), (middles[-1], bar))
            for middle in set(middles):
                self.canvas.path("nvlink", (middle, bar), (middle, top))
            self.canvas.centred((middles[0] + middles[-1]) / 2, bar - 8, f"NVLink × {links[0].links}")
            return
        for link in drawn:
            start, end = self._gpus[link.first][0], self._gpus[link.second][0]
            depth = 8 + 30 * abs(end - start) / max(1.0, middles[-1] - middles[0])
            self.canvas.arc("arc", start, end, top, depth, min(6.0, 1 + link.links))
        self.canvas.text(self.x, top - 46, "NVLink", "ink-bold")

    def _nic_tree(self, socket: Socket, column: tuple[float, float], y: float, to_left: bool) -> float:
        """Draw interfaces below each other, and wires from the socket to them. Returns their lower end."""
        groups = _alike([nic for nic in self.host.nics if _is_on(nic.socket, socket)])
        if not groups:
            return y
        x, width = column
        wire = x + width - _PAD if to_left else x + _PAD
        span = (x if to_left else x + _TREE, width - _TREE)
        beside, anchor = (wire - 6, "end") if to_left else (wire + 6, "start")
        self.canvas.text(beside, y + 14, "PCIe", "quiet", anchor=anchor)
        end, middle = y + _LABELLED_WIRE, y
        for nics in groups:
            top, end = end, self._nic(nics, span, end, to_left) + 6
            middle = (top + end - 6) / 2
            self.canvas.path("pcie", (wire, middle), (span[0] + (span[1] if to_left else 0), middle))
        self.canvas.path("pcie", (wire, y), (wire, middle))
        return end - 6

    def _nic(self, nics: Sequence[Nic], span: tuple[float, float], y: float, to_left: bool) -> float:
        """Draw a box for one interface, or for several similar ones. Returns its lower end."""
        x, width = span
        first = nics[0]
        name = first.name if len(nics) == 1 else f"{len(nics)} × {', '.join(nic.name for nic in nics)}"
        addresses = self.group.addresses(first) if len(nics) == 1 else ""
        details = [words.speed(first, self.canvas.say), words.nic_model(first), addresses]
        texts = [line for text in filter(None, details) for line in wrapped(text, width - 16, 2)]
        height = 12 + LINE * (1 + len(texts))
        self.canvas.box(x, y, width, height, "nic")
        self.canvas.text(x + 8, y + 18, cut(name, width - 16, SMALL, True), "ink-bold")
        self.canvas.lines(x + 8, y + 6 + LINE, texts, "ink")
        self.exits += [(nic, y + height / 2, x if to_left else x + width) for nic in nics]
        return y + height


def _is_on(number: int | None, socket: Socket) -> bool:
    return number is not None and number == socket.number


def _described(socket: Socket, is_one: bool, width: float, say: Language) -> list[str]:
    """Lines of text; the first is the socket's name."""
    name = say("Socket {number}", number=socket.number)
    if socket.number is None:
        name = say("Sockets: not told apart")
    lines = [cut(name, width, SMALL, True), *wrapped(words.processor(socket, say), width, 2)]
    lines += wrapped(words.cores(socket, say), width, 2)
    if not is_one and socket.memory_bytes is not None:
        lines.append(say("{memory} of memory", memory=words.memory(socket.memory_bytes)))
    return lines


def _alike(nics: Sequence[Nic]) -> list[list[Nic]]:
    """Groups of three or more neighbours that differ only by name and address; others alone."""
    found: list[list[Nic]] = []
    for _, part in itertools.groupby(nics, key=lambda nic: (words.nic_model(nic), words.speed(nic))):
        same = list(part)
        found += [same] if len(same) >= words.FOLD_FROM else [[nic] for nic in same]
    return found


def _models(gpus: Sequence[Gpu]) -> list[str]:
    """ "GPU 0-7: NVIDIA A100-SXM4-80GB, 80 GiB"."""
    kinds: dict[str, list[int]] = {}
    for gpu in gpus:
        kinds.setdefault(words.gpu_model(gpu), []).append(gpu.index)
    return [f"GPU {words.numbers(indices)}: {kind}" for kind, indices in kinds.items()]


def _is_complete(links: Sequence[GpuLink]) -> bool:
    members = {index for link in links for index in (link.first, link.second)}
    return len(links) == len(members) * (len(members) - 1) // 2 and len({link.links for link in links}) == 1


def _room_above(nvlinks: Sequence[GpuLink]) -> float:
    if not nvlinks:
        return 0
    return 30 if _is_complete(nvlinks) else 56
