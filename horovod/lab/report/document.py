"""A report before it is written. All texts are final, so HTML and Markdown have the same."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Cell", "Document", "Link", "Note", "Picture", "Section", "Table"]


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
class Note:
    mark: str
    text: str


@dataclass(frozen=True)
class Table:
    """A table. The first `names` cells of a row name it; the others hold numbers if `is_numeric`."""

    name: str  # of the element in HTML
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[Note, ...] = ()
    names: int = 1
    is_numeric: bool = False


@dataclass(frozen=True)
class Picture:
    name: str  # of the file, without .svg
    title: str
    caption: str
    svg: str  # a complete document, with plain colours


@dataclass(frozen=True)
class Section:
    """Sentences under a heading."""

    title: str
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Document:
    language: str
    title: str
    warnings: tuple[str, ...]
    summary: tuple[str, ...]
    method: tuple[tuple[str, str], ...]  # topic and description
    environment: tuple[Table, ...]
    topology: tuple[Picture, ...]
    results: tuple[Table, ...]  # one for each place
    pictures: tuple[Picture, ...]
    explanation: tuple[Section, ...]
    runs: Table
    command: str = ""  # the lab's command line for the same runs; "" if unknown
