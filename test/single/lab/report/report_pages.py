"""Reads a report's tables back, from HTML and from Markdown."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from urllib.parse import unquote

Rows = list[list[str]]


class TableReader(HTMLParser):
    """All tables by id, each a list of rows of the texts of cells; and every id, address and element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, Rows] = {}
        self.ids: list[str] = []
        self.links: list[str] = []
        self.elements: list[str] = []
        self.text = ""
        self._rows: Rows = []
        self._cell: list[str] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.elements.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.links.append(unquote(str(found["href"])))
        if tag == "table":
            self._rows = self.tables.setdefault(str(found["id"]), [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self._rows[-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell is not None:
            self._cell.append(data)


def markdown_tables(page: str) -> list[Rows]:
    """In their order; what they show, without links, marks and escapes."""
    tables: list[Rows] = []
    before = ""
    for line in page.splitlines():
        if line.startswith("| "):
            if not before.startswith("| "):
                tables.append([])
            cells = [shown(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not all(set(cell) <= set("-:") for cell in cells):
                tables[-1].append(cells)
        before = line
    return tables


def shown(markdown: str) -> str:
    """What a reader of GitHub sees of a cell."""
    text = re.sub(r"(?<!\\)\[((?:\\.|[^\]\\])*)\]\([^)]*\)", r"\1", markdown)
    text = re.sub(r"</?sup>", "", text)
    text = re.sub(r"\\(.)", r"\1", text)
    return " ".join(html.unescape(text).split())
