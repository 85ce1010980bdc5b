"""A drawing of boxes, words and arrows, as an SVG that follows the reader's light or dark scheme.

Drawings are 400 units wide, so that on a telephone a unit is a pixel and 12 units of type are legible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH = 400
FONT_SIZE = 13
SMALL = 11.5
LINE_HEIGHT = 1.25
HEAD = 7  # length of an arrow's head
# name -> its colour in the light and in the dark scheme
COLOURS = {
    "paper": ("#ffffff", "#16191f"),
    "ink": ("#1b2733", "#e8ecf1"),
    "quiet": ("#52606d", "#a9b4c0"),
    "line": ("#8793a0", "#77828f"),
    "accent": ("#c2410c", "#fb923c"),
    "plain": ("#eef1f4", "#2a3038"),
    "rank0": ("#cfe3f7", "#1f4a73"),
    "rank1": ("#fde0b6", "#6d4a12"),
    "rank2": ("#cdebd3", "#1f5a35"),
    "rank3": ("#f3d1e6", "#6b2f57"),
    "part1": ("#eef1f4", "#2a3038"),
    "part2": ("#d3e3f5", "#23405f"),
    "part3": ("#a9cbee", "#2a5c8f"),
    "part4": ("#7fb2e5", "#2869ab"),
}


def style() -> str:
    """Every colour as a variable, given twice: for light and for dark."""
    light, dark = ("".join(f"--{name}:{pair[i]};" for name, pair in COLOURS.items()) for i in (0, 1))
    rules = [f"svg{{{light}}}", f"@media(prefers-color-scheme:dark){{svg{{{dark}}}}}"]
    rules.append(f"text{{font:{FONT_SIZE}px system-ui,'DejaVu Sans',sans-serif;fill:var(--ink)}}")
    return "\n".join(rules)


@dataclass
class Drawing:
    """What has been drawn so far. Coordinates begin at the upper left corner."""

    title: str
    description: str
    height: int
    _parts: list[str] = field(default_factory=list)

    def box(
        self, x: float, y: float, width: float, height: float, label: str = "", fill: str = "plain"
    ) -> None:
        """A box with words in its middle, on several lines where ``label`` has them."""
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
            f'fill="var(--{fill})" stroke="var(--line)"/>'
        )
        if label:
            self.words(x + width / 2, y + height / 2, label)

    def cell(
        self, x: float, y: float, width: float, height: float, label: str, fill: str, *, marked: bool = False
    ) -> None:
        """A cell of a table: a box without round corners; one that is ``marked`` has a thick edge."""
        edge = 'stroke="var(--accent)" stroke-width="2.5"' if marked else 'stroke="var(--line)"'
        inset = 1 if marked else 0
        self._parts.append(
            f'<rect x="{x + inset:g}" y="{y + inset:g}" width="{width - 2 * inset:g}" '
            f'height="{height - 2 * inset:g}" fill="var(--{fill})" {edge}/>'
        )
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
        """Lines of text whose middle is at height ``y``."""
        lines = text.split("\n")
        first = y - (len(lines) - 1) * size * LINE_HEIGHT / 2 + size * 0.36
        weight = ";font-weight:600" if bold else ""
        for number, line in enumerate(lines):
            self._parts.append(
                f'<text x="{x:g}" y="{first + number * size * LINE_HEIGHT:.4g}" text-anchor="{anchor}" '
                f'style="font-size:{size:g}px;fill:var(--{colour}){weight}">{escape(line)}</text>'
            )

    def heading(self, y: float, text: str) -> None:
        """Words at the left edge, above what they name."""
        self.words(12, y, text, anchor="start", bold=True)

    def line(self, *points: tuple[float, float], colour: str = "line", dashed: bool = False) -> None:
        """A line through points."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        self._parts.append(
            f'<polyline points="{path}" fill="none" stroke="var(--{colour})" stroke-width="1.5"{dashes}/>'
        )

    def arrow(self, *points: tuple[float, float], colour: str = "quiet", dashed: bool = False) -> None:
        """A line through points, with a head at the last."""
        (x0, y0), (x1, y1) = points[-2:]
        length = math.hypot(x1 - x0, y1 - y0)
        ux, uy = (x1 - x0) / length, (y1 - y0) / length
        base_x, base_y = x1 - HEAD * ux, y1 - HEAD * uy
        self.line(*points[:-1], (base_x, base_y), colour=colour, dashed=dashed)
        wing_x, wing_y = -uy * HEAD / 2, ux * HEAD / 2
        corners = ((x1, y1), (base_x + wing_x, base_y + wing_y), (base_x - wing_x, base_y - wing_y))
        path = " ".join(f"{x:.4g},{y:.4g}" for x, y in corners)
        self._parts.append(f'<polygon points="{path}" fill="var(--{colour})"/>')

    def dot(self, x: float, y: float, label: str, fill: str = "plain") -> None:
        """A circle with a short word in it: a rank."""
        self._parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="11" fill="var(--{fill})" stroke="var(--line)"/>'
        )
        self.words(x, y, label, size=SMALL)

    def svg(self) -> str:
        """The whole file."""
        body = "\n".join(self._parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
            f'width="{WIDTH * 3 // 2}" height="{self.height * 3 // 2}" '
            f'role="img" aria-labelledby="title desc">\n'
            f'<title id="title">{escape(self.title)}</title>\n'
            f'<desc id="desc">{escape(self.description)}</desc>\n'
            f"<style>\n{style()}\n</style>\n"
            f'<rect width="{WIDTH}" height="{self.height}" rx="8" fill="var(--paper)"/>\n{body}\n</svg>\n'
        )
