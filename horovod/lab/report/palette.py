"""Colours, dashes and markers of plots, distinguishable by colour-blind readers and on grey paper."""

from __future__ import annotations

from dataclasses import dataclass

from horovod.drawing.palette import SERIES, light
from horovod.lab.report.names import Names
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL

__all__ = ["FAINT", "INK", "LINE", "WAITING", "Stroke", "shade", "stroke"]

INK, LINE, FAINT = light("ink"), light("line"), light("faint")  # of text, of axes, of grids
SERIAL_COLOUR, WAITING = light("grey"), light("yellow")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[object, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (6, 1.5, 1, 1.5)))


@dataclass(frozen=True)
class Stroke:
    """The style of a row: colour and marker show its algorithm, dashes its number of ranks."""

    colour: str
    marker: str
    dashes: object


def shade(algorithm: str, names: Names) -> str:
    if algorithm == SERIAL:
        return SERIAL_COLOUR
    return light(SERIES[number_of(algorithm, names) % len(SERIES)])


def stroke(row: Row, ranks: list[int], names: Names) -> Stroke:
    """The style of a row. `ranks`: all numbers of ranks of the report, without the serial one."""
    if row.algorithm == SERIAL:
        return Stroke(SERIAL_COLOUR, "x", "-")
    marker = MARKERS[number_of(row.algorithm, names) % len(MARKERS)]
    return Stroke(shade(row.algorithm, names), marker, DASHES[ranks.index(row.ranks) % len(DASHES)])


def number_of(algorithm: str, names: Names) -> int:
    return [name for name in names.algorithms if name != SERIAL].index(algorithm)
