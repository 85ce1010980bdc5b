"""What an SVG drawing is made of: boxes, lines and texts, with colours for light and dark pages."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from html import escape

from horovod.topology.language import ENGLISH, Language

SMALL, NORMAL, LARGE = 12.0, 13.0, 17.0  # sizes of text; at 400 pixels' width the smallest has 10 pixels
LINE = 16.0  # from one line of small text to the next
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', Arial, sans-serif"
# Widths of letters in ems, of a wide font (DejaVu Sans), so that text fits in any.
_NARROW = {**dict.fromkeys("ijl.,:;|!'` ", 0.33), **dict.fromkeys("frt()[]/-I", 0.42)}
_WIDE = {**dict.fromkeys("mwMW@%", 0.98), **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ+=<>~&", 0.78)}
_BOLD = 1.12

# name: (light, dark). Each text has a contrast of 4.5 or more to what it lies on.
COLOURS = {
    "paper": ("#ffffff", "#14171c"),
    "card": ("#f6f8fa", "#1c2128"),
    "edge": ("#c4ccd6", "#434c59"),
    "ink": ("#1b2028", "#e6eaf0"),
    "quiet": ("#56606d", "#a2adbb"),
    "wire": ("#7b8794", "#8491a1"),
    "socket": ("#ffffff", "#262c35"),
    "gpu": ("#def2e1", "#173a24"),
    "gpu-edge": ("#2f8f46", "#3fae5a"),
    "nic": ("#e1ecfb", "#152f50"),
    "nic-edge": ("#2f6fc4", "#5b9bea"),
    "rank": ("#ebe2fb", "#3a2766"),
    "rank-edge": ("#7a4fc9", "#a988f0"),
}


def width_of(text: str, size: float, is_bold: bool = False) -> float:
    """An upper bound, in the drawing's units."""
    ems = 0.0
    for letter in text:
        is_full = unicodedata.east_asian_width(letter) in "WF"
        ems += 1.05 if is_full else _NARROW.get(letter) or _WIDE.get(letter) or 0.65
    return ems * size * (_BOLD if is_bold else 1.0)


def cut(text: str, width: float, size: float = SMALL, is_bold: bool = False) -> str:
    """The text, or as much of it as fits, with dots at its end."""
    if width_of(text, size, is_bold) <= width:
        return text
    while text and width_of(text + "…", size, is_bold) > width:
        text = text[:-1]
    return text.rstrip(" ,;:") + "…"


def wrapped(text: str, width: float, most: int = 9, size: float = SMALL) -> list[str]:
    """In lines that fit; of more than `most` lines the last ends in dots."""
    lines: list[str] = []
    for word in text.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [cut(line, width, size) for line in lines]


@dataclass
class Canvas:
    """Collects elements; `prefix` begins all names, so that several drawings fit on one page."""

    width: float
    prefix: str
    say: Language = ENGLISH
    elements: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 6) -> None:
        self.elements.append(
            f'<rect class="{self.prefix}-{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
            f'rx="{radius:g}"/>'
        )

    def path(self, kind: str, *points: tuple[float, float]) -> None:
        """Straight from point to point."""
        text = " L".join(f"{x:g} {y:g}" for x, y in points)
        self.elements.append(f'<path class="{self.prefix}-{kind}" d="M{text}"/>')

    def arc(self, kind: str, start: float, end: float, y: float, depth: float, thickness: float) -> None:
        """From one place on a level to another one, bent upwards."""
        top = y - depth * 4 / 3  # a cubic curve reaches three quarters of the way to its handles
        self.elements.append(
            f'<path class="{self.prefix}-{kind}" d="M{start:g} {y:g} C{start:g} {top:g} {end:g} {top:g} '
            f'{end:g} {y:g}" stroke-width="{thickness:g}"/>'
        )

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        self.elements.append(f'<circle class="{self.prefix}-{kind}" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>')

    def text(
        self, x: float, y: float, text: str, kind: str = "ink", size: float = SMALL, anchor: str = "start"
    ) -> None:
        """`y` is the line that letters stand on. `kind` is a colour, followed by "-bold" for bold text."""
        colour = kind.removesuffix("-bold")
        weight = ' font-weight="600"' if kind.endswith("-bold") else ""
        self.elements.append(
            f'<text class="{self.prefix}-{colour}" x="{x:g}" y="{y:g}" font-size="{size:g}" '
            f'text-anchor="{anchor}"{weight}>{escape(_printable(text))}</text>'
        )

    def lines(self, x: float, y: float, lines: list[str], kind: str = "quiet") -> float:
        """Lines of small text below y; returns where they end."""
        for line in lines:
            self.text(x, y + 12, line, kind)
            y += LINE
        return y

    def document(self, height: float, title: str) -> str:
        """The whole drawing, for a file or inline in a page."""
        name = escape(_printable(title))
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="{self.prefix}" role="img" '
            f'viewBox="0 0 {self.width:g} {height:g}" font-family="{escape(_FONT)}" '
            f'width="{self.width * 1.5:g}" height="{height * 1.5:g}" style="max-width:100%;height:auto" '
            f'aria-label="{name}">\n'
            f"<style>{self._style()}</style>\n" + "\n".join(self.elements) + "\n</svg>\n"
        )

    def _style(self) -> str:
        own = f".{self.prefix}"
        light = "".join(f"--{name}:{pair[0]};" for name, pair in COLOURS.items())
        dark = "".join(f"--{name}:{pair[1]};" for name, pair in COLOURS.items())
        rules = [
            f"{own}{{{light}background:var(--paper)}}",
            f"@media screen and (prefers-color-scheme:dark){{{own}{{{dark}}}}}",
            f"{own} text{{stroke:none}}",
            *(f"{own}-{name}{{fill:var(--{name})}}" for name in COLOURS),
            *(f"{own}-{name}{{stroke:var(--edge)}}" for name in ("card", "socket")),
            f"{own}-gpu{{stroke:var(--gpu-edge)}}",
            f"{own}-nic{{stroke:var(--nic-edge)}}",
            f"{own}-rank{{stroke:var(--rank-edge)}}",
            f"{own}-pcie{{stroke:var(--wire);stroke-width:1.5;fill:none}}",
            f"{own}-between{{stroke:var(--wire);stroke-width:4;fill:none}}",
            f"{own}-nvlink{{stroke:var(--gpu-edge);stroke-width:5;fill:none;stroke-linecap:round}}",
            f"{own}-arc{{stroke:var(--gpu-edge);fill:none}}",
            f"{own}-cable{{stroke:var(--nic-edge);stroke-width:2.5;fill:none}}",
            f"{own}-rule{{stroke:var(--edge);stroke-width:1;fill:none}}",
        ]
        return "\n".join(rules)


def _printable(text: str) -> str:
    """Without what XML cannot hold."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
