"""The report as GitHub's Markdown, with the pictures beside it in plots/."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from urllib.parse import quote

from horovod.lab.report.document import Cell, Document, Picture, Table
from horovod.lab.report.words import Words

__all__ = ["escaped", "page"]


def page(document: Document, words: Words) -> str:
    """The page. Its tables have the cells of the HTML page's."""
    blocks = [f"# {escaped(document.title)}", escaped(words.together(*document.summary))]
    if document.warnings:
        lines = [f"**{escaped(words('warnings_heading'))}**", *map(escaped, document.warnings)]
        blocks.append("> [!WARNING]\n" + "\n>\n".join(f"> {line}" for line in lines))
    blocks.append(heading(words("method_heading")))
    blocks.append(bullets(f"**{escaped(what)}**: {escaped(how)}" for what, how in document.method))
    blocks.append(escaped(words("measured")))
    if document.command:
        blocks += [escaped(words("again")), fenced(document.command)]
    blocks.append(heading(words("environment_heading")))
    for each in document.environment:
        blocks += [f"### {escaped(each.caption)}", table(each)]
    if document.topology:
        blocks.append(heading(words("topology_heading")))
        blocks += [picture(each) for each in document.topology]
    blocks.append(heading(words("results_heading")))
    for each in document.results:
        blocks += [escaped(each.caption), table(each)]
        if each.notes:
            blocks.append(bullets(f"<sup>{note.mark}</sup> {escaped(note.text)}" for note in each.notes))
    blocks.append(heading(words("plots_heading")))
    blocks += [picture(each) for each in document.pictures]
    if document.explanation:
        blocks.append(heading(words("explanation_heading")))
    for section in document.explanation:
        blocks += [f"### {escaped(section.title)}", bullets(map(escaped, section.sentences))]
    blocks += [heading(words("runs_heading")), escaped(document.runs.caption), table(document.runs)]
    blocks.append(escaped(words("footer")))
    return "\n\n".join(blocks) + "\n"


def heading(text: str) -> str:
    return f"## {escaped(text)}"


def bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def fenced(code: str) -> str:
    """A block of code. Its fence is longer than any in the code."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{code}\n{fence}"


def table(table: Table) -> str:
    numeric = "--:" if table.is_numeric else "---"
    alignment = ["---"] * table.names + [numeric] * (len(table.head) - table.names)
    rows = [[escaped(name) for name in table.head], alignment]
    rows += [[cell_text(cell) for cell in row] for row in table.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cell_text(cell: Cell) -> str:
    text = escaped(cell.text) + (f"<sup>{cell.note}</sup>" if cell.note else "")
    links = [f"[{escaped(link.text)}]({quote(link.target)})" for link in cell.links]
    return " ".join([text, *links] if text else links)


def picture(picture: Picture) -> str:
    return (
        f"### {escaped(picture.title)}\n\n![{escaped(picture.title)}](plots/{picture.name}.svg)\n\n"
        f"{escaped(picture.caption)}"
    )


def escaped(text: str) -> str:
    """Text on one line, without markup of HTML or Markdown."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\`*_\[\]|~#])", r"\\\1", html.escape(one_line, quote=False))
