"""Adapts matplotlib's SVG to a page: colours, fonts, ids and a title."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure

from horovod.drawing.palette import COLOURS, light
from horovod.drawing.svg import box, document


def standalone(figure: Figure, name: str, title: str, description: str) -> str:
    """A separate file: plain colours on white paper, which every viewer shows."""
    stream = io.StringIO()
    without_date = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(stream, format="svg", metadata=without_date)
    drawn = re.sub(r"<metadata>.*?</metadata>\s*", "", stream.getvalue(), flags=re.DOTALL)
    width, height = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0])
    inside = drawn[drawn.index(">", drawn.index("<svg")) + 1 : drawn.rindex("</svg>")]
    body = box(0, 0, width, height, class_="paper", fill=light("paper"))
    body += with_reader_fonts(with_prefix(inside, name))
    links: dict[str, Any] = {"xmlns:xlink": "http://www.w3.org/1999/xlink"}
    whole = document(width, height, title, body, description, prefix=f"{name}-", **links)
    ElementTree.fromstring(whole)  # finds text that breaks the XML here, before the reader does
    return whole


def with_prefix(body: str, name: str) -> str:
    """The figure with ids that are unique on the page."""
    return in_tags(body, r' id="|href="#|url\(#', lambda found: f"{found[0]}{name}-")


def with_reader_fonts(body: str) -> str:
    """The figure with font sizes only: matplotlib names fonts that the reader may lack."""
    return in_tags(body, r"font: (?:(bold|\d00) )?([\d.]+px) [^;\"]*", size_and_weight)


def size_and_weight(found: re.Match[str]) -> str:
    weight = f"; font-weight: {found[1]}" if found[1] else ""
    return f"font-size: {found[2]}{weight}"


def inline(svg: str) -> str:
    """The figure for a page: colours become the page's variables, which follow light and dark mode."""
    svg = re.sub(r'<rect [^>]*class="paper"[^>]*/>', "", svg)
    variables = {pair[0]: f"var(--{name}, {pair[0]})" for name, pair in COLOURS.items()}
    return in_tags(svg, r"#[0-9a-f]{6}", lambda found: variables.get(found[0], found[0]))


def in_tags(svg: str, pattern: str, change: Callable[[re.Match[str]], str]) -> str:
    """Replace matches in tags and attributes, but not in the text of a figure."""
    return re.sub(r"<[^>]+>", lambda tag: re.sub(pattern, change, tag[0]), svg)
