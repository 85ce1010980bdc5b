"""A drawing of boxes, words and arrows, as an SVG that follows the reader's light or dark scheme.

Drawings are 400 units wide, so that on a telephone a unit is a pixel and 12-unit type is legible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from horovod.drawing import palette, svg

WIDTH = 400
FONT_SIZE = 13
SMALL = 11.5
LINE_HEIGHT = 1.25
HEAD = 7  # length of an arrow's head
RANKS = ("pale_blue", "pale_orange")  # the colour of each
LEVELS = ("plain", "blue_1", "blue_2", "blue_3")  # from less to more


@dataclass
class Drawing:
    """The elements drawn so far. The origin is the upper left corner, colours are the palette's."""

    title: str
    description: str
    height: int
    _parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, label: str = "", fill: str = "plain"
    ) -> None:
        """Draw a box with words in its middle, on several lines if ``label`` has them."""
        self._parts.append(svg.box(x, y, width, height, 4, fill=f"var(--{fill})", stroke="var(--line)"))
        if label:
            self.words(x + width / 2, y + height / 2, label)

    def cell(
        self, x: float, y: float, width: float, height: float, label: str, fill: str, *, marked: bool = False
    ) -> None:
        """Draw a cell of a table: a box without round corners; with a thick edge if ``marked``."""
        edge, thickness, inset = ("accent", 2.5, 1) if marked else ("line", 1, 0)
        look: dict[str, Any] = {"fill": f"var(--{fill})", "stroke": f"var(--{edge})"}
        inside = (x + inset, y + inset, width - 2 * inset, height - 2 * inset)
        self._parts.append(svg.box(*inside, **look, stroke_width=thickness))
        if label:
            self.words(x + width / 2, y + height / 2, label, size=SMALL)

    def words(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str = "middle",
        colour: str = "ink",
        size: float = FONT_SIZE,
        bold: bool = False,
    ) -> None:
        """Draw lines of text whose middle is at height ``y``."""
        lines = text.split("\n")
        first = y - (len(lines) - 1) * size * LINE_HEIGHT / 2 + size * 0.36
        for number, line in enumerate(lines):
            at = (x, round(first + number * size * LINE_HEIGHT, 1))
            self._parts.append(svg.text(at, line, size, anchor, is_bold=bold, fill=f"var(--{colour})"))

    def heading(self, y: float, text: str) -> None:
        """Draw words at the left edge, as a heading."""
        self.words(12, y, text, anchor="start", bold=True)

    def line(self, *points: tuple[float, float], colour: str = "line", dashed: bool = False) -> None:
        """Draw a line through points."""
        look: dict[str, Any] = {"fill": "none", "stroke": f"var(--{colour})", "stroke_width": 1.5}
        if dashed:
            look["stroke_dasharray"] = "4 3"
        self._parts.append(svg.line(points, **look))

    def arrow(self, *points: tuple[float, float], colour: str = "quiet", dashed: bool = False) -> None:
        """Draw a line through points, with a head at the last."""
        (x0, y0), (x1, y1) = points[-2:]
        length = math.hypot(x1 - x0, y1 - y0)
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        base_x, base_y = round(x1 - HEAD * ux, 1), round(y1 - HEAD * uy, 1)
        self.line(*points[:-1], (base_x, base_y), colour=colour, dashed=dashed)
        wing_x, wing_y = round(-uy * HEAD / 2, 1), round(ux * HEAD / 2, 1)
        corners = ((x1, y1), (base_x + wing_x, base_y + wing_y), (base_x - wing_x, base_y - wing_y))
        self._parts.append(svg.line(corners, is_closed=True, fill=f"var(--{colour})"))

    def dot(self, x: float, y: float, label: str, fill: str = "plain") -> None:
        """Draw a circle with a short word in it: a rank."""
        self._parts.append(svg.circle(x, y, 11, fill=f"var(--{fill})", stroke="var(--line)"))
        self.words(x, y, label, size=SMALL)

    def svg(self) -> str:
        """The whole file."""
        paper = svg.box(0, 0, WIDTH, self.height, 8, fill="var(--paper)")
        body = "\n".join([paper, *self._parts])
        used = [name for name in palette.COLOURS if f"var(--{name})" in body]
        style = svg.element("style", palette.rules("svg", used))
        return svg.document(WIDTH, self.height, self.title, f"{style}\n{body}", self.description, scale=1.5)
