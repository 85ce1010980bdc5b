"""Print the JSON of codec.py and allreduce.py as short tables in Markdown.

    python benchmarks/codec.py --out docs/measured/codec.json
    python benchmarks/allreduce.py --out docs/measured/allreduce.json
    python benchmarks/summary.py docs/measured/codec.json docs/measured/allreduce.json
"""

from __future__ import annotations

import argparse
import sys

import allreduce
import codec
import report
from report import Record


def codec_section(document: Record) -> str:
    size, rounds = document["settings"]["bytes"], document["settings"]["rounds"]
    title = f"### Codec: {report.size_text(size)} of N(0,1), one thread, median of {rounds} rounds"
    return "\n\n".join([title, report.measured_on(document["machine"]), codec.table_of(document["rows"])])


def matrix(rows: list[Record], mode: str) -> str:
    """Return sizes down, contenders across; a cell has the time and our gain over the better rival."""
    names = [name for name in allreduce.NAMES if any(row["contender"] == name for row in rows)]
    index = allreduce.index_of(rows)

    def cell(row: Record) -> str:
        is_compared = row["contender"] not in allreduce.RIVALS and row["versus_best"] is not None
        return report.time_text(row["seconds"]) + (f" ({row['versus_best']:.2f})" if is_compared else "")

    sizes = sorted({row["bytes"] for row in rows})
    lines = [[report.size_text(size), *(cell(index[size, name, mode]) for name in names)] for size in sizes]
    return report.table(["size", *names], lines)


def allreduce_section(document: Record) -> str:
    parts = []
    for run in document["runs"]:
        ranks = run["ranks"]
        rows = [row for row in document["rows"] if row["ranks"] == ranks]
        parts += [
            f"### Allreduce of float32, {ranks} ranks on one host",
            report.measured_on(document["machine"] | {k: v for k, v in run.items() if k != "ranks"}),
            "In place: median time, and in brackets the speed-up over the better of MPI and gloo.",
            matrix(rows, "in_place"),
            "Out of place, where Horovod allocates its result and MPI has it already:",
            matrix(rows, "out_of_place"),
        ]
    return "\n\n".join(parts)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Results of the benchmarks as Markdown.")
    parser.add_argument("documents", nargs="+", help="JSON written by codec.py --out or allreduce.py --out")
    documents = map(report.read_json, parser.parse_args(words).documents)
    sections = {"codec": codec_section, "allreduce": allreduce_section}
    print("\n\n".join(sections[document["benchmark"]](document) for document in documents))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
