"""A document as GitHub's Markdown, with the pictures beside it in plots/, and as one HTML file."""

from __future__ import annotations

import html
import re
from importlib import resources
from urllib.parse import quote

from markupsafe import Markup

from horovod.drawing.palette import rules
from horovod.lab.report import svg
from horovod.lab.report.document import Block, Bullets, Cell, Code, Document, Paragraph, Picture, Table
from horovod.lab.report.words import environment

BREAKS = ("/", "_", "-")  # a long path may break after these


def html_page(document: Document) -> str:
    """The page. The template escapes all text; only the style and the pictures are markup."""
    style = resources.files("horovod.lab.report").joinpath("style.css").read_text(encoding="utf-8")
    return environment().get_template("report.html.jinja").render(
        document=document,
        style=Markup(f"{rules(':root')}\n{style}"),  # of this package
        breakable=breakable,
        drawing=lambda picture: Markup(svg.inline(picture.svg)),  # its texts are escaped
    )


def breakable(text: str) -> Markup:
    """The escaped text, with places at which a narrow screen may break it."""
    found = Markup.escape(text)
    for mark in BREAKS:
        found = found.replace(mark, Markup(f"{mark}<wbr>"))
    return Markup(found)


def markdown_page(document: Document) -> str:
    """The page. Its tables have the cells of the HTML page's."""
    written = [f"# {escaped(document.title)}", escaped(document.summary)]
    for section in document.sections:
        if section.key == "warning":
            lines = [f"**{escaped(section.title)}**"]
            for block in section.blocks:
                lines += [line.removeprefix("- ") for line in markdown(block).splitlines()]
            written.append("> [!WARNING]\n" + "\n>\n".join(f"> {line}" for line in lines))
            continue
        written += [f"## {escaped(section.title)}", *map(markdown, section.blocks)]
        for part in section.parts:
            written += [f"### {escaped(part.title)}", *map(markdown, part.blocks)]
    return "\n\n".join([*written, escaped(document.labels["footer"])]) + "\n"


def markdown(block: Block) -> str:
    match block:
        case Paragraph(text):
            return escaped(text)
        case Bullets(items):
            terms = [f"**{escaped(term)}**: " if term else "" for term, _ in items]
            lines = [f"- {term}{escaped(text)}" for term, (_, text) in zip(terms, items, strict=True)]
            return "\n".join(lines)
        case Code(text):  # the fence is longer than any in the code
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
            return f"{fence}sh\n{text}\n{fence}"
        case Picture():
            title = escaped(block.title)
            return f"### {title}\n\n![{title}](plots/{block.name}.svg)\n\n{escaped(block.caption)}"
        case Table():
            return table(block)


def table(table: Table) -> str:
    numeric = "--:" if table.is_numeric else "---"
    alignment = ["---"] * table.names + [numeric] * (len(table.head) - table.names)
    rows = [[escaped(name) for name in table.head], alignment]
    rows += [[cell_text(cell) for cell in row] for row in table.rows]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    parts = ["### " * table.is_titled + escaped(table.caption), "\n".join(lines)]
    if table.notes:
        parts.append("\n".join(f"- <sup>{mark}</sup> {escaped(text)}" for mark, text in table.notes))
    return "\n\n".join(parts)


def cell_text(cell: Cell) -> str:
    text = escaped(cell.text) + (f"<sup>{cell.note}</sup>" if cell.note else "")
    links = [f"[{escaped(link.text)}]({quote(link.target)})" for link in cell.links]
    return " ".join([text, *links] if text else links)


def escaped(text: str) -> str:
    """Text on one line, without markup of HTML or Markdown."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html.escape(one_line, quote=False))
