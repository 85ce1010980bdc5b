"""Colours, dashes and markers of plots: told apart by the colour-blind, and on grey paper.

The colours are those of Okabe and Ito ("Color Universal Design", 2008), the pale ones darkened until they
stand out on white by 3 to 1. A page shows each in a light and a dark variant (style.css); here are the light
ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from horovod.lab.report.names import Names
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL

__all__ = ["FAINT", "INK", "LINE", "SERIES", "VARIABLES", "WAITING", "Stroke", "shade", "stroke"]

INK = "#33393f"  # of text
LINE = "#8b949c"  # of axes
FAINT = "#dde1e5"  # of grids
SERIAL_COLOUR = "#59626b"
SERIES = ("#0072b2", "#d55e00", "#009371", "#b35a91", "#a87400", "#3a8fc2")
WAITING = "#e3a72f"
VARIABLES = {
    INK: f"var(--ink, {INK})",
    LINE: f"var(--line, {LINE})",
    FAINT: f"var(--faint, {FAINT})",
    SERIAL_COLOUR: f"var(--serial, {SERIAL_COLOUR})",
    WAITING: f"var(--waiting, {WAITING})",
    **{colour: f"var(--series-{i}, {colour})" for i, colour in enumerate(SERIES)},
}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[object, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (6, 1.5, 1, 1.5)))


@dataclass(frozen=True)
class Stroke:
    """How a row is drawn: its algorithm by colour and marker, its number of ranks by the dashes."""

    colour: str
    marker: str
    dashes: object


def shade(algorithm: str, names: Names) -> str:
    if algorithm == SERIAL:
        return SERIAL_COLOUR
    return SERIES[job_hosts_of(algorithm, names) % len(SERIES)]


def stroke(row: Row, ranks: list[int], names: Names) -> Stroke:
    """`ranks`: all numbers of ranks of the report, without the serial one."""
    if row.algorithm == SERIAL:
        return Stroke(SERIAL_COLOUR, "x", "-")
    marker = MARKERS[job_hosts_of(row.algorithm, names) % len(MARKERS)]
    return Stroke(shade(row.algorithm, names), marker, DASHES[ranks.index(row.ranks) % len(DASHES)])


def job_hosts_of(algorithm: str, names: Names) -> int:
    return [name for name in names.algorithms if name != SERIAL].index(algorithm)
