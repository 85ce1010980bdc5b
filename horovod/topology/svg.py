"""The drawing as SVG: legible from a width of 400 pixels, on light and dark pages, in a file or inline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from horovod.drawing.svg import SMALL, cut, width_of, wrapped
from horovod.topology import words
from horovod.topology.canvas import LARGE, LINE, NORMAL, Canvas
from horovod.topology.facts import Host, Ranks
from horovod.topology.language import ENGLISH, Language
from horovod.topology.svg_host import HostDrawing

if TYPE_CHECKING:  # a drawing without routes needs no native core
    from horovod.topology.routes import Route

WIDTH = 480.0
MARGIN = 24.0  # beside the hosts, for cables
_RAIL = 10.0  # within a margin: the place of cables
_GAP = 16.0
_INSET = 14.0  # of a host's contents
_STACK = 8.0  # offset of the cards behind a stack of similar hosts
_MOST_RANKS_DRAWN = 8


def drawing(
    hosts: Sequence[Host],
    ranks: Ranks | None = None,
    routes: Sequence[Route] = (),
    prefix: str = "topology",
    say: Language = ENGLISH,
) -> str:
    """The hosts below each other, the networks between them, and a table of routes.

    `prefix` begins the names of classes; it must differ between drawings on a page. Texts about ranks and
    routes are always English.
    """
    canvas = Canvas(WIDTH, prefix, say)
    shared = words.shared_networks(hosts)
    y = 8.0
    cables: list[tuple[float, float]] = []  # ends of interfaces in shared networks
    for group in words.groups(hosts, ranks):
        y, ends = _host(canvas, group, y, frozenset(shared))
        cables += ends
        y += _GAP
    if cables:
        y = _network(canvas, list(shared), cables, ranks, y)
    if ranks is not None and routes:
        y = _routes(canvas, ranks, routes, y)
    names = ", ".join(host.name for host in hosts)
    return canvas.document(y, say("Topology of {count} host{s}: {hosts}", count=len(hosts), hosts=names))


def _host(
    canvas: Canvas, group: words.Group, y: float, shared: frozenset[str]
) -> tuple[float, list[tuple[float, float]]]:
    """Draw a group of hosts. Returns its lower end, and the exits of its interfaces."""
    of_host = Canvas(WIDTH, canvas.prefix, canvas.say)
    inside = HostDrawing(of_host, group, MARGIN + _INSET, _inner_width(group))
    top = y
    bottom = inside.draw(y + 30 + LINE * (len(_title_lines(group)) + 1))
    is_stack = len(group.hosts) > 1
    for offset in (_STACK, _STACK / 2, 0) if is_stack else (0,):
        width = WIDTH - 2 * MARGIN - _STACK * is_stack
        canvas.box(MARGIN + offset, top + offset, width, bottom - top, "card", 10)
    _header(canvas, group, top)
    canvas.elements += inside.canvas.elements
    ends = []
    for nic, exit_y, exit_x in inside.exits:
        if shared.intersection(nic.networks):
            rail = _RAIL if exit_x < WIDTH / 2 else WIDTH - _RAIL
            canvas.path("cable", (exit_x, exit_y), (rail, exit_y))
            ends.append((rail, exit_y))
    return bottom + _STACK * is_stack, ends


def _inner_width(group: words.Group) -> float:
    return WIDTH - 2 * (MARGIN + _INSET) - _STACK * (len(group.hosts) > 1)


def _title_lines(group: words.Group) -> list[str]:
    """The names of similar hosts, for the lines below their number."""
    if len(group.hosts) == 1:
        return []
    return wrapped(", ".join(host.name for host in group.hosts), _inner_width(group), 3)


def _header(canvas: Canvas, group: words.Group, y: float) -> None:
    x, right = MARGIN + _INSET, MARGIN + _INSET + _inner_width(group)
    left_of_ranks = _ranks(canvas, group, right, y + 20)
    say, host = canvas.say, group.host
    name = host.name if len(group.hosts) == 1 else say("{count} × the same", count=len(group.hosts))
    canvas.text(x, y + 26, cut(name, left_of_ranks - x - 8, LARGE, True), "ink-bold", LARGE)
    total = say("memory unknown")
    if host.memory_bytes is not None:
        total = say("{memory} of memory", memory=words.memory(host.memory_bytes))
    usable = say("{count} thread{s} usable", count=host.usable_cores)
    canvas.lines(x, y + 30, [*_title_lines(group), f"{total}, {usable}"])


def _ranks(canvas: Canvas, group: words.Group, right: float, y: float) -> float:
    """Draw circles with rank numbers, or the numbers as text. Returns their left end."""
    ranks = group.ranks
    if not ranks:
        return right
    if len(ranks) > _MOST_RANKS_DRAWN or max(ranks) > 99:
        text = group.rank_text()
        wide = width_of(text, SMALL, True) + 20
        canvas.labelled(right - wide, y - 11, wide, 22, "rank", text, 11)
        return right - wide
    x = right - 11
    for rank in reversed(ranks):
        canvas.circle(x, y, 11, "rank")
        canvas.centred(x, y + 4.5, str(rank))
        x -= 25
    label = "rank" if len(ranks) == 1 else "ranks"
    canvas.text(x + 8, y + 4.5, label, "quiet", SMALL, "end")
    return x + 8 - width_of(label, SMALL)


def _network(
    canvas: Canvas, networks: list[str], cables: Sequence[tuple[float, float]], ranks: Ranks | None, y: float
) -> float:
    """Draw the rails at both sides, and the network's bar. Returns its lower end."""
    for rail in {x for x, _ in cables}:
        canvas.path("cable", (rail, min(top for x, top in cables if x == rail)), (rail, y + 4))
    lines = wrapped(canvas.say("Network {networks}", networks=", ".join(networks)), WIDTH - 40, 3, NORMAL)
    height = 14 + LINE * (len(lines) + 1)
    if ranks is None or not ranks.spans_hosts:
        height -= LINE
    canvas.box(4, y, WIDTH - 8, height, "nic", 10)
    for line in lines:
        canvas.centred(WIDTH / 2, y + 19, line)
        y += LINE
    if ranks is not None and ranks.spans_hosts:
        links = ranks.links
        how = "measured" if links.is_measured else "assumed"
        speed, latency = words.rate(8 / links.network_byte), links.network_latency * 1e6
        text = f"{how}: {speed} in each direction, {latency:.0f} µs to the next host"
        canvas.centred(WIDTH / 2, y + 19, text, "ink")
        y += LINE
    return y + 14 + _GAP


def _routes(canvas: Canvas, ranks: Ranks, routes: Sequence[Route], y: float) -> float:
    """Draw a row for each size, a column for each compression. Returns the lower end."""
    heading = f"Routes of allreduces among {words.number_of(len(ranks.hosts), 'rank')}"
    canvas.text(8, y + 18, heading, "ink-bold", NORMAL)
    y += 28
    compressions = list(dict.fromkeys(route.compression for route in routes))
    sizes = list(dict.fromkeys(route.size for route in routes))
    first = 64.0
    column = (WIDTH - first) / len(compressions)
    for number, compression in enumerate(compressions):
        text = "not compressed" if compression == "none" else compression
        canvas.text(first + number * column, y + 12, text, "quiet")
    y += LINE
    for size in sizes:
        canvas.path("rule", (8, y), (WIDTH - 8, y))
        canvas.text(8, y + 18, words.size(size), "ink")
        for route in (route for route in routes if route.size == size):
            x = first + compressions.index(route.compression) * column
            cost = words.duration(route.milliseconds) if route.estimates else ""
            canvas.text(x + column - 10, y + 18, cost, "ink-bold", SMALL, "end")
            space = column - 16 - width_of(cost, SMALL, True)
            canvas.text(x, y + 18, cut(route.name, space), "ink")
        y += 26
    if len(ranks.hosts) == 1:
        return y + 10
    how = "measured" if ranks.links.is_measured else "assumed"
    of_what = "memory and network" if ranks.spans_hosts else "memory"
    text = f"Estimates of what one takes, from the {how} speed of {of_what}"
    return canvas.lines(8, y, wrapped(text, WIDTH - 16)) + 10
