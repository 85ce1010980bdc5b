"""The report as one HTML file, with style and pictures inside."""

from __future__ import annotations

from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from horovod.drawing.palette import rules
from horovod.lab.report import svg
from horovod.lab.report.document import Document
from horovod.lab.report.words import Words

__all__ = ["page"]

BREAKS = ("/", "_", "-")  # a long path may break after these


def page(document: Document, words: Words) -> str:
    """The page. The template escapes all text; only the style and the pictures are markup."""
    environment = Environment(
        loader=PackageLoader("horovod.lab", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = breakable
    style = resources.files("horovod.lab.report").joinpath("style.css").read_text(encoding="utf-8")
    return environment.get_template("report.html.jinja").render(
        document=document,
        words=words,
        style=Markup(f"{rules(':root')}\n{style}"),  # of this package
        drawing=lambda picture: Markup(svg.inline(picture.svg)),  # its texts are escaped
    )


def breakable(text: str) -> Markup:
    """The escaped text, with places at which a narrow screen may break it."""
    found = Markup.escape(text)
    for mark in BREAKS:
        found = found.replace(mark, Markup(f"{mark}<wbr>"))
    return Markup(found)
