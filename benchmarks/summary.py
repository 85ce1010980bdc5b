"""Turns the JSON of codec.py and allreduce.py into the results section of docs/benchmarks.md.

    python benchmarks/codec.py --out codec.json && python benchmarks/allreduce.py --out allreduce.json
    python benchmarks/summary.py codec.json allreduce.json                             # print it
    python benchmarks/summary.py codec.json allreduce.json --into docs/benchmarks.md   # replace it there

Everything after the line MARK in the page is replaced: no figure in it is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import allreduce
import codec
import report

MARK = "<!-- everything below is written by benchmarks/summary.py -->"


def codec_section(document: dict[str, Any]) -> str:
    size, rounds = document["settings"]["bytes"], document["settings"]["rounds"]
    title = f"### Codec: {report.size_text(size)} of N(0,1), one thread, median of {rounds} rounds"
    return "\n\n".join([title, machine_line(document["machine"]), codec.table_of(document["rows"])])


def machine_line(facts: dict[str, Any]) -> str:
    return f"Measured on: {report.machine_text(facts)}."


def matrix(rows: list[dict[str, Any]], mode: str) -> str:
    """Sizes down, contenders across; a cell is the time and, for ours, the speed-up over the better rival."""
    names = [name for name in allreduce.NAMES if any(row["contender"] == name for row in rows)]
    index = allreduce.index_of(rows)
    lines = []
    for size in sorted({row["bytes"] for row in rows}):
        cells = [report.size_text(size)]
        for name in names:
            ratio = allreduce.versus(index, size, name, mode)
            text = report.time_text(index[size, name, mode]["seconds"])
            shown = name not in allreduce.RIVALS and ratio is not None
            cells.append(f"{text} ({ratio:.2f})" if shown else text)
        lines.append(cells)
    return report.table(["size", *names], lines)


def allreduce_sections(document: dict[str, Any]) -> list[str]:
    parts = []
    for run in document["runs"]:
        ranks = run["ranks"]
        rows = [row for row in document["rows"] if row["ranks"] == ranks]
        spreads = sorted(row["spread"] for row in rows)
        parts += [
            f"### Allreduce of float32, {ranks} ranks on one host",
            machine_line(document["machine"] | {k: v for k, v in run.items() if k != "ranks"})
            + f" Spread: {spreads[len(spreads) // 2]:.0%} in the middle, {spreads[-1]:.0%} at worst.",
            "In place: median time, and in brackets the speed-up over the better of MPI and gloo.",
            matrix(rows, "in_place"),
            "Out of place, where Horovod allocates its result and MPI has it already:",
            matrix(rows, "out_of_place"),
        ]
    return parts


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Results of the benchmarks as Markdown.")
    parser.add_argument("documents", nargs="+", help="JSON written by codec.py --out or allreduce.py --out")
    parser.add_argument("--into", default="", help="page whose part after the mark is replaced; else print")
    chosen = parser.parse_args(words)
    parts: list[str] = []
    for name in chosen.documents:
        document = json.loads(Path(name).read_text())
        if document["benchmark"] == "codec":
            parts.append(codec_section(document))
        else:
            parts += allreduce_sections(document)
    text = "\n\n".join(parts) + "\n"
    if not chosen.into:
        print(text, end="")
        return 0
    page = Path(chosen.into)
    before, mark, _ = page.read_text().partition(MARK)
    if not mark:
        parser.error(f"{page} has no line {MARK!r}: nothing was written")
    page.write_text(f"{before}{MARK}\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
