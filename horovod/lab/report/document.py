"""A report before it is written as HTML and Markdown: sections of texts, tables and pictures.

A template in the report's language makes the text, with a few marks of Markdown at the beginnings of lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from horovod.lab.report.words import tidy


@dataclass(frozen=True)
class Link:
    text: str
    target: str  # relative to the report's folder
    title: str = ""


@dataclass(frozen=True)
class Cell:
    text: str
    note: str = ""  # the mark of a footnote
    links: tuple[Link, ...] = ()


@dataclass(frozen=True)
class Table:
    """A table. The first `names` cells of a row name it; the others hold numbers if `is_numeric`."""

    name: str  # of the element in HTML
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[tuple[str, str], ...] = ()  # mark and text
    names: int = 1
    is_numeric: bool = False
    is_titled: bool = False  # whether the caption is a heading
    caption: str = ""
    head: tuple[str, ...] = ()


@dataclass(frozen=True)
class Picture:
    name: str  # of the file, without .svg
    draw: Callable[[str, str], str]  # makes the SVG from title and caption
    title: str = ""
    caption: str = ""

    @cached_property
    def svg(self) -> str:
        """A complete document, with plain colours."""
        return self.draw(self.title, self.caption)


@dataclass(frozen=True)
class Code:
    text: str


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class Bullets:
    items: tuple[tuple[str, str], ...]  # a term or "", and the text


Block = Table | Picture | Code | Paragraph | Bullets


@dataclass(frozen=True)
class Section:
    title: str
    blocks: list[Block]
    key: str = ""  # of the element in HTML
    parts: list[Section] = field(default_factory=list)


@dataclass(frozen=True)
class Document:
    language: str
    labels: Mapping[str, Any]  # for HTML alone, and at the end
    title: str
    summary: str
    sections: list[Section]

    @property
    def pictures(self) -> list[Picture]:
        return [block for each in self.sections for block in each.blocks if isinstance(block, Picture)]


class Parser:
    """Makes a document of a template's text. `show` is the template's function for tables and pictures."""

    def __init__(self, labels: Mapping[str, Any]) -> None:
        self._labels = labels
        self._shown: list[Block] = []

    def show(self, block: Block, caller: Callable[[], str] | None = None, **words: Any) -> str:
        """A mark for a table or picture with these words; its caption may be the text of a `call`."""
        if caller is not None:
            words["caption"] = self._joined(caller())
        for name, text in words.items():
            words[name] = tidy(text) if isinstance(text, str) else tuple(map(tidy, text))
        self._shown.append(replace(block, **words))
        return f"\n\n\0{len(self._shown) - 1}\n\n"

    def document(self, text: str, language: str) -> Document:
        head, *rest = re.split(r"^## (\w+): (.+)$", tidy(text), flags=re.MULTILINE)
        title, summary = head.strip().split("\n\n")
        sections = [self._section(*parts) for parts in zip(rest[::3], rest[1::3], rest[2::3], strict=True)]
        found = [each for each in sections if each.blocks or each.parts]
        return Document(language, self._labels, title.removeprefix("# "), self._joined(summary), found)

    def _section(self, key: str, title: str, text: str) -> Section:
        """A section; parts without content are left out."""
        first, *rest = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
        pairs = zip(rest[::2], rest[1::2], strict=True)
        parts = [Section(name, list(self._blocks(body))) for name, body in pairs]
        return Section(title, list(self._blocks(first)), key, [part for part in parts if part.blocks])

    def _blocks(self, text: str) -> Iterator[Block]:
        for block in filter(None, map(str.strip, re.split(r"\n\s*\n", text))):
            if block.startswith("\0"):
                yield self._shown[int(block[1:])]
            elif block.startswith("- "):
                items = map(self._joined, re.split(r"^- ", block, flags=re.MULTILINE)[1:])
                matches = [re.fullmatch(r"(?:\*\*(.+?)\*\*: )?(.*)", item) for item in items]
                yield Bullets(tuple((match[1] or "", match[2]) for match in matches if match))
            else:
                yield Paragraph(self._joined(block))

    def _joined(self, text: str) -> str:
        gap: str = self._labels["gap"]  # between sentences
        return gap.join(filter(None, map(str.strip, text.splitlines())))
