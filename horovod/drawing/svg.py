"""Parts of an SVG: elements, texts with known maximum widths, and the document around them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from html import escape

Point = tuple[float, float]
# The reader's fonts. Without the CJK fonts a browser may choose a font that is not Chinese.
FONTS = (
    "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', 'Noto Sans CJK SC', 'PingFang SC', "
    "'Microsoft YaHei', sans-serif"
)
# Widths of letters in ems, of a wide font (DejaVu Sans), so that text fits in any font.
_NARROW = {**dict.fromkeys("ijl.,:;|!'` ", 0.33), **dict.fromkeys("frt()[]/-I", 0.42)}
_WIDE = {**dict.fromkeys("mwMW@%", 0.98), **dict.fromkeys("ABCDEFGHJKLNOPQRSTUVXYZ+=<>~&", 0.78)}
_BOLD = 1.12
SMALL = 12.0  # size of text: 10 pixels for a 480-wide drawing shown at 400 pixels


def escaped(text: str) -> str:
    """Return the text escaped for an attribute or an element, without characters that XML forbids."""
    return escape("".join(letter if letter.isprintable() else "\ufffd" for letter in text))


def element(name: str, inside: str | None = None, /, **attributes: str | float) -> str:
    """Return an element; `inside` is XML. In attribute names "_" becomes "-"; a trailing one is dropped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{value if isinstance(value, str) else f"{value:g}"}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}/>" if inside is None else f"<{name}{written}>{inside}</{name}>"


def box(x: float, y: float, width: float, height: float, radius: float = 0, **look: str | float) -> str:
    return element("rect", x=x, y=y, width=width, height=height, rx=radius, **look)


def circle(x: float, y: float, radius: float, **look: str | float) -> str:
    return element("circle", cx=x, cy=y, r=radius, **look)


def line(points: Iterable[Point], **look: str | float) -> str:
    """Return a path of straight lines through the points."""
    path = " L".join(f"{x:g} {y:g}" for x, y in points)
    return element("path", d=f"M{path}", **look)


def text(
    at: Point, content: str, size: float, anchor: str = "start", *, is_bold: bool = False, **look: str | float
) -> str:
    """Return a text whose baseline is at the point."""
    weight = {"font_weight": "600"} if is_bold else {}
    return element(
        "text", escaped(content), x=at[0], y=at[1], font_size=size, text_anchor=anchor, **weight, **look
    )


def width_of(content: str, size: float, is_bold: bool = False) -> float:
    """Return an upper bound of the width, in the drawing's units."""
    ems = 0.0
    for letter in content:
        is_full = unicodedata.east_asian_width(letter) in "WF"
        ems += 1.05 if is_full else _NARROW.get(letter) or _WIDE.get(letter) or 0.65
    return ems * size * (_BOLD if is_bold else 1.0)


def cut(content: str, width: float, size: float = SMALL, is_bold: bool = False) -> str:
    """Return the text, shortened with an ellipsis to the width."""
    if width_of(content, size, is_bold) <= width:
        return content
    while content and width_of(content + "…", size, is_bold) > width:
        content = content[:-1]
    return content.rstrip(" ,;:") + "…"


def wrapped(content: str, width: float, most: int = 9, size: float = SMALL) -> list[str]:
    """Return the text as lines that fit; the last of `most` lines ends in an ellipsis if text is left."""
    lines: list[str] = []
    for word in content.split():
        if lines and width_of(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    if len(lines) > most:
        lines = [*lines[: most - 1], " ".join(lines[most - 1 :])]
    return [cut(each, width, size) for each in lines]


def document(
    width: float,
    height: float,
    title: str,
    body: str,
    description: str = "",
    *,
    scale: float = 1,
    prefix: str = "",
    **attributes: str,
) -> str:
    """Return the whole drawing, for a file or inline in a page; `scale`: of its default size.

    With a description, title and description are elements whose ids begin with `prefix`; a title alone is an
    attribute.
    """
    named = {"aria-label": escaped(title)}
    if description:
        named = {"aria-labelledby": f"{prefix}title {prefix}desc"}
        body = (
            f"{element('title', escaped(title), id=f'{prefix}title')}\n"
            f"{element('desc', escaped(description), id=f'{prefix}desc')}\n{body}"
        )
    head = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {width:g} {height:g}", "role": "img"}
    shown = {"width": f"{width * scale:g}", "height": f"{height * scale:g}", "font-family": FONTS}
    return element("svg", f"\n{body}\n", **head, **shown, **named, **attributes) + "\n"
