"""The code blocks of the pages for tests: all blocks of a page, or of one of its sections."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
METADATA = re.compile(r"^<!-- runs\n(.*?)^-->", re.MULTILINE | re.DOTALL)  # see parallel/page_runs.py
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    body: str
    line: int  # of the page, at the begin of the body
    is_next: bool  # only blank lines precede it since the previous block


def text_of(document: str) -> str:
    """Return the text of a page that readers see."""
    return METADATA.sub("", (ROOT / document).read_text(encoding="utf-8"))


def all_blocks(text: str) -> list[Block]:
    found, end = [], -1
    for match in BLOCK.finditer(text):
        is_next = end >= 0 and not text[end : match.start()].strip()
        found.append(Block(match[1], match[2], text.count("\n", 0, match.start(2)) + 1, is_next))
        end = match.end()
    return found


def blocks_of(document: str, section: str = "") -> list[Block]:
    """Return the blocks of a page such as "docs/ddp.md", or of its section with this second-level heading."""
    text = (ROOT / document).read_text(encoding="utf-8")
    if not section:
        return all_blocks(text)
    before, heading, rest = text.partition(f"\n## {section}\n")
    assert heading, f"{document} has no section {section}"
    above = (before + heading).count("\n")
    return [block._replace(line=block.line + above) for block in all_blocks(rest.partition("\n## ")[0])]


def blocks(document: str, language: str, section: str = "") -> list[str]:
    """Return the texts of the blocks in a language, in order."""
    return [block.body for block in blocks_of(document, section) if block.language == language]


def commands(document: str, section: str = "") -> list[str]:
    return [line for body in blocks(document, "sh", section) for line in body.splitlines()]


def arguments_of(program: str, document: str) -> list[list[str]]:
    """Return the arguments that a page gives to a program of this repository, for each line that runs it."""
    begin = f"python {program} "
    lines = [line.removeprefix(begin) for line in commands(document) if line.startswith(begin)]
    return [shlex.split(line, comments=True) for line in lines]


def script(pieces: Iterable[Block], before_each: str = "") -> str:
    """Return one script of a page's blocks, each on the page's lines, so that a traceback names these.

    before_each: a statement for the line above each; "#" in it becomes the block's number.
    """
    lines: list[str] = []
    for number, piece in enumerate(pieces):
        lines += [""] * (piece.line - 2 - len(lines))
        lines += [before_each.replace("#", str(number)), *piece.body.splitlines()]
    return "\n".join(lines) + "\n"
