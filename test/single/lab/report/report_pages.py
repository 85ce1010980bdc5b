"""Parses a report: its tables, from HTML and from Markdown, and its sentences."""

from __future__ import annotations

import html
import re
import string
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from lab_samples import sample_environment, sample_host

from horovod.lab.environment import Environment
from horovod.lab.report import explanation, method, summary
from horovod.lab.report.codec_errors import codec_errors
from horovod.lab.report.names import Names
from horovod.lab.report.words import LANGUAGES, Words
from horovod.lab.results import Row, table
from horovod.lab.runs import Run

Rows = list[list[str]]
HERE = Path("/lab")
ROOMY = sample_environment(sample_host(cores=64))


def named(runs: Sequence[Run], language: str = "en") -> tuple[list[Row], Names]:
    rows = table(runs)
    return rows, Names(rows, Words(language))


def summarised(runs: Sequence[Run], environment: Environment = ROOMY, language: str = "en") -> str:
    return " ".join(summary.sentences(table(runs), environment, named(runs, language)[1], Words(language)))


def explained(
    runs: Sequence[Run], title: str, environment: Environment = ROOMY, language: str = "en"
) -> str | None:
    """The sentences below a heading, by its key; None without it."""
    (rows, names), words = named(runs, language), Words(language)
    found = explanation.sections(rows, environment, codec_errors(names.algorithms), names, words)
    return next((" ".join(each.sentences) for each in found if each.title == words(title)), None)


def warned(runs: Sequence[Run], rows: Sequence[Row] = (), language: str = "en") -> list[str]:
    words = Words(language)
    rows = rows or table(runs)
    return method.warnings(runs, rows, Names(rows, words), words)


def says(text: str | None, key: str, language: str = "en", **values: object) -> bool:
    """Whether a text has this sentence with these values; other values are arbitrary."""
    pattern = ""
    for literal, name, _, _ in string.Formatter().parse(LANGUAGES[language][key]):
        pattern += re.escape(literal) + (
            "" if name is None else re.escape(str(values.get(name, ""))) or ".+?"
        )
    return re.search(pattern, text or "") is not None


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
    """The cells in order, as shown: without links, marks and escapes."""
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
    """The text of a cell as GitHub shows it."""
    text = re.sub(r"(?<!\\)\[((?:\\.|[^\]\\])*)\]\([^)]*\)", r"\1", markdown)
    text = re.sub(r"</?sup>", "", text)
    text = re.sub(r"\\(.)", r"\1", text)
    return " ".join(html.unescape(text).split())
