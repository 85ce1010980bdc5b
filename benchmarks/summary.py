"""Print the JSON of codec.py and allreduce.py as short tables in Markdown.

    python benchmarks/codec.py --out docs/measured/codec.json
    python benchmarks/allreduce.py --out docs/measured/allreduce.json
    python benchmarks/summary.py docs/measured/codec.json docs/measured/allreduce.json
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


def codec_section(document: dict[str, Any]) -> str:
    size, rounds = document["settings"]["bytes"], document["settings"]["rounds"]
    title = f"### Codec: {report.size_text(size)} of N(0,1), one thread, median of {rounds} rounds"
    return "\n\n".join([title, machine_line(document["machine"]), codec.table_of(document["rows"])])


def machine_line(facts: dict[str, Any]) -> str:
    return f"Measured on: {report.machine_text(facts)}."


def matrix(rows: list[dict[str, Any]], mode: str) -> str:
    """Return sizes down, contenders across; a cell has the time and our gain over the better rival."""
    names = [name for name in allreduce.NAMES if any(row["contender"] == name for row in rows)]
    index = allreduce.index_of(rows)
    lines = []
    for size in sorted({row["bytes"] for row in rows}):
        cells = [report.size_text(size)]
        for name in names:
            row = index[size, name, mode]
            shown = name not in allreduce.RIVALS and row["versus_best"] is not None
            ratio = f" ({row['versus_best']:.2f})" if shown else ""
            cells.append(report.time_text(row["seconds"]) + ratio)
        lines.append(cells)
    return report.table(["size", *names], lines)


def allreduce_sections(document: dict[str, Any]) -> list[str]:
    parts = []
    for run in document["runs"]:
        ranks = run["ranks"]
        rows = [row for row in document["rows"] if row["ranks"] == ranks]
        parts += [
            f"### Allreduce of float32, {ranks} ranks on one host",
            machine_line(document["machine"] | {k: v for k, v in run.items() if k != "ranks"}),
            "In place: median time, and in brackets the speed-up over the better of MPI and gloo.",
            matrix(rows, "in_place"),
            "Out of place, where Horovod allocates its result and MPI has it already:",
            matrix(rows, "out_of_place"),
        ]
    return parts


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Results of the benchmarks as Markdown.")
    parser.add_argument("documents", nargs="+", help="JSON written by codec.py --out or allreduce.py --out")
    chosen = parser.parse_args(words)
    parts: list[str] = []
    for name in chosen.documents:
        document = json.loads(Path(name).read_text())
        if document["benchmark"] == "codec":
            parts.append(codec_section(document))
        else:
            parts += allreduce_sections(document)
    print("\n\n".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
