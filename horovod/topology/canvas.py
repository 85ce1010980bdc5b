"""Elements of a drawing of hosts: boxes, wires and texts, each of a kind with its colours."""

from __future__ import annotations

from dataclasses import dataclass, field

from horovod.drawing import palette, svg
from horovod.drawing.svg import SMALL
from horovod.topology.language import ENGLISH, Language

NORMAL, LARGE = 13.0, 17.0  # sizes of text beside SMALL
LINE = 16.0  # between lines of small text
# kind: (fill, edge) of a box
BOXES = {
    "card": ("plain", "line"),
    "socket": ("paper", "line"),
    "gpu": ("pale_green", "green"),
    "nic": ("pale_blue", "blue"),
    "rank": ("pale_pink", "pink"),
}
# kind: (colour, width) of a line; None: each line sets its own
_LINES = {
    "pcie": ("line", 1.5),
    "between": ("line", 4),
    "nvlink": ("green", 5),
    "arc": ("green", None),
    "cable": ("blue", 2.5),
    "rule": ("line", 1),
}
_TEXTS = ("ink", "quiet")


@dataclass
class Canvas:
    """Collects elements. `prefix` begins all class names, so that one page can have several drawings."""

    width: float
    prefix: str
    say: Language = ENGLISH
    elements: list[str] = field(default_factory=list)

    def box(self, x: float, y: float, width: float, height: float, kind: str, radius: float = 6) -> None:
        self.elements.append(svg.box(x, y, width, height, radius, class_=f"{self.prefix}-{kind}"))

    def path(self, kind: str, *points: tuple[float, float]) -> None:
        """Draw straight lines from point to point."""
        self.elements.append(svg.line(points, class_=f"{self.prefix}-{kind}"))

    def arc(self, kind: str, start: float, end: float, y: float, depth: float, thickness: float) -> None:
        """Draw an arc between two points at height y, bent upwards."""
        top = y - depth * 4 / 3  # a cubic curve reaches three quarters of the way to its handles
        curve = f"M{start:g} {y:g} C{start:g} {top:g} {end:g} {top:g} {end:g} {y:g}"
        self.elements.append(
            svg.element("path", class_=f"{self.prefix}-{kind}", d=curve, stroke_width=thickness)
        )

    def circle(self, x: float, y: float, radius: float, kind: str) -> None:
        self.elements.append(svg.circle(x, y, radius, class_=f"{self.prefix}-{kind}"))

    def text(
        self, x: float, y: float, text: str, kind: str = "ink", size: float = SMALL, anchor: str = "start"
    ) -> None:
        """Draw text. `y` is its baseline. `kind` is a colour, with "-bold" for bold text."""
        look = f"{self.prefix}-{kind.removesuffix('-bold')}"
        is_bold = kind.endswith("-bold")
        self.elements.append(svg.text((x, y), text, size, anchor, is_bold=is_bold, class_=look))

    def centred(self, x: float, y: float, text: str, kind: str = "ink-bold") -> None:
        self.text(x, y, text, kind, anchor="middle")

    def labelled(
        self, x: float, y: float, width: float, height: float, kind: str, text: str, radius: float
    ) -> None:
        """Draw a box with a text in its middle."""
        self.box(x, y, width, height, kind, radius)
        self.centred(x + width / 2, y + height / 2 + 4.5, text)

    def lines(self, x: float, y: float, lines: list[str], kind: str = "quiet") -> float:
        """Draw lines of small text below y. Returns their lower end."""
        for line in lines:
            self.text(x, y + 12, line, kind)
            y += LINE
        return y

    def document(self, height: float, title: str) -> str:
        """The whole drawing, for a file or inline in a page."""
        body = "\n".join([svg.element("style", self._style()), *self.elements])
        fits = "max-width:100%;height:auto"
        return svg.document(self.width, height, title, body, scale=1.5, class_=self.prefix, style=fits)

    def _style(self) -> str:
        own = f".{self.prefix}"
        names = dict.fromkeys(["paper", *_TEXTS, *sum(BOXES.values(), ()), *(c for c, _ in _LINES.values())])
        rules = [
            palette.rules(own, names),
            f"{own}{{background:var(--paper)}}",
            *(f"{own}-{name}{{fill:var(--{name})}}" for name in _TEXTS),
        ]
        for kind, (fill, edge) in BOXES.items():
            rules.append(f"{own}-{kind}{{fill:var(--{fill});stroke:var(--{edge})}}")
        for kind, (colour, width) in _LINES.items():
            thick = f"stroke-width:{width:g};" if width else ""
            rules.append(f"{own}-{kind}{{stroke:var(--{colour});{thick}fill:none;stroke-linecap:round}}")
        return "\n".join(rules)
