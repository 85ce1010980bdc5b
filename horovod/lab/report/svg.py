"""From matplotlib's SVG to one that belongs on a page: its colours, fonts, ids and a title."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable
from xml.etree import ElementTree

from matplotlib.figure import Figure

from horovod.lab.report.palette import VARIABLES

__all__ = ["FONTS", "inline", "standalone"]

# The reader's own fonts; without the CJK ones a browser would choose by itself, and not always a Chinese one.
FONTS = (
    "system-ui, 'Noto Sans', 'DejaVu Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"
)
PAPER = "#ffffff"


def standalone(figure: Figure, name: str, title: str, description: str) -> str:
    """A file of its own: plain colours on white paper, which every viewer shows."""
    stream = io.StringIO()
    without_date = {"Date": None, "Creator": None, "Format": None, "Type": None}
    figure.savefig(stream, format="svg", metadata=without_date)
    drawn = re.sub(r"<metadata>.*?</metadata>\s*", "", stream.getvalue(), flags=re.DOTALL)
    width, height = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn)[0]
    body = drawn[drawn.index(">", drawn.index("<svg")) + 1 :]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc" font-family="{FONTS}">\n'
        f'<title id="{name}-title">{html.escape(title)}</title>\n'
        f'<desc id="{name}-desc">{html.escape(description)}</desc>\n'
        f'<rect class="paper" width="{width}" height="{height}" fill="{PAPER}"/>'
    )
    whole = head + with_reader_fonts(with_prefix(body, name))
    ElementTree.fromstring(whole)  # a text that broke the XML would be found out here, and not by the reader
    return whole


def with_prefix(body: str, name: str) -> str:
    """Ids that no other figure of the page has."""
    return in_tags(body, r' id="|href="#|url\(#', lambda found: f"{found[0]}{name}-")


def with_reader_fonts(body: str) -> str:
    """Only sizes stay: matplotlib names the fonts that it measured with, which the reader may lack."""
    return in_tags(body, r"font: (?:(bold|\d00) )?([\d.]+px) [^;\"]*", size_and_weight)


def size_and_weight(found: re.Match[str]) -> str:
    weight = f"; font-weight: {found[1]}" if found[1] else ""
    return f"font-size: {found[2]}{weight}"


def inline(svg: str) -> str:
    """The same for a page: colours become the page's variables, so that they follow light and dark."""
    svg = re.sub(r'<rect class="paper"[^>]*/>', "", svg)
    return in_tags(svg, r"#[0-9a-f]{6}", lambda found: VARIABLES.get(found[0], found[0]))


def in_tags(svg: str, pattern: str, change: Callable[[re.Match[str]], str]) -> str:
    """Changes attributes, and leaves the text that a figure shows alone."""
    return re.sub(r"<[^>]+>", lambda tag: re.sub(pattern, change, tag[0]), svg)
