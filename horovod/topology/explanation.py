"""The effect of a topology on allreduces: figures of the links, routes and reasons, as terminal text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from horovod.topology import words
from horovod.topology.facts import Ranks
from horovod.topology.routes import Route, meaning


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
    lines.append(
        f"  memory   {speed:.1f} GB/s; another rank of the host notices after about {latency:.0f} us"
    )
    if len(set(ranks.hosts)) > 1:
        latency, bits = links.network_latency * 1e6, 8 / links.network_byte
        lines.append(
            f"  network  {words.rate(bits)} in each direction; another host notices after {latency:.0f} us"
        )
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
    return [*lines, *_rules(ranks, routes)]


def _rules(ranks: Ranks, routes: Sequence[Route]) -> list[str]:
    """The reasons why a route is not the cheapest."""
    if len(ranks.hosts) == 1:
        return []
    reasons = dict.fromkeys(route.reason for route in routes)
    given = [reason for reason in reasons if not reason.startswith("estimated:")]
    if not given:
        return ["", "Each is the cheapest of those that are possible here, by the figures above."]
    return ["", *(f"Not by cost: {reason}." for reason in given)]
