"""Tables of the measurements of benchmarks/cluster.py."""

from __future__ import annotations

from typing import Any

import report

from on_hosts import training

Record = dict[str, Any]
MEBI = 1 << 20


def size_text(size: int) -> str:
    return f"{size // MEBI} MiB" if size % MEBI == 0 else report.size_text(size)


def where(row: Record) -> str:
    return f"{row['hosts']} host{'s' if row['hosts'] > 1 else ''}, {row['rate']}"


def links_table(rows: list[Record]) -> str:
    lines = [[where(row), f"{row['bytes_per_second'] / 1e6:.1f}", f"{row['spread']:.1%}"] for row in rows]
    return report.table(["cables", "TCP payload, MB/s", "spread"], lines)


def allreduce_table(rows: list[Record]) -> str:
    """Return a table with a line per size and contender."""
    headings = ["cables", "size", "contender", "time", "spread", "limit", "x limit", "out / in place"]
    headings += ["sent / needed", "NMSE"]
    lines = [
        [
            where(row),
            size_text(row["bytes"]),
            row["contender"],
            report.time_text(row["seconds"]),
            f"{row['spread']:.0%}",
            report.time_text(row["limit"]),
            f"{row['times_limit']:.2f}",
            "" if row.get("out_of_place") is None else f"{row['out_of_place']:.2f}",
            f"{row['sent'] / row['needed']:.2f}",
            f"{row['nmse']:.1e}",
        ]
        for row in rows
    ]
    return report.table(headings, lines, left=3)


def versus(rows: list[Record], row: Record, rival: str) -> str:
    """Return the ratio of samples per second to the rival's, as text."""
    for other in rows:
        if other["contender"] == rival:
            return f"{row['samples_per_second'] / other['samples_per_second']:.2f}"
    return ""


def computing(rows: list[Record]) -> float:
    """Return the seconds of a step without communication."""
    return next(float(row["seconds"]) for row in rows if row["contender"] == training.ALONE)


def training_title(rows: list[Record]) -> str:
    first, compute = rows[0], computing(rows)
    return (
        f"{first['model']}, {first['parameters'] / 1e6:.1f} M parameters, {where(first)}, batch of "
        f"{first['batch']} on each: compute C = {compute:.2f} s, float32 on the wire "
        f"W = {first['wire']:.2f} s, W/C = {first['wire'] / compute:.1f}"
    )


def training_table(rows: list[Record]) -> str:
    headings = ["contender", "samples/s", "step", "spread", "MB sent", "x DDP", "x DDP fp16"]
    lines = [
        [
            row["contender"],
            f"{row['samples_per_second']:.3g}",
            f"{row['seconds']:.2f} s",
            f"{row['spread']:.0%}",
            f"{row['sent'] / 1e6:.1f}",
            versus(rows, row, "DDP"),
            versus(rows, row, "DDP fp16"),
        ]
        for row in rows
    ]
    return report.table(headings, lines)


def scaling_table(rows: list[Record]) -> str:
    """Contenders down, numbers of hosts across; a cell is samples per second, and efficiency in brackets."""
    counts = sorted({row["hosts"] for row in rows})
    (alone,) = (row for row in rows if row["contender"] == training.ALONE)
    cells = {
        (row["contender"], row["hosts"]): f"{row['samples_per_second']:.1f} ({efficiency(row, alone):.0%})"
        for row in rows
    }
    names = dict.fromkeys(row["contender"] for row in rows)
    lines = [[name, *(cells.get((name, count), "") for count in counts)] for name in names]
    return report.table(["contender", *(f"{count} host{'s' * (count > 1)}" for count in counts)], lines)


def efficiency(row: Record, alone: Record) -> float:
    """Return samples per second of n hosts over n times those of one."""
    return float(row["samples_per_second"] / row["hosts"] / alone["samples_per_second"])


def sections(document: Record) -> list[tuple[str, str]]:
    """Yield title and table of every measurement, in order."""
    parts = [("What the cables carry", links_table(document["links"]))]
    if document["allreduce"]:
        title = "Allreduce of float32 in place, one rank per host"
        parts.append((title, allreduce_table(document["allreduce"])))
    parts += [(training_title(rows), training_table(rows)) for rows in document["training"]]
    if document["scaling"]:
        first = document["scaling"][0]
        title = (
            f"Scaling of a {first['model']}, {first['parameters'] / 1e6:.1f} M parameters, {first['rate']}: "
            f"samples/s (efficiency); computing is {first['seconds']:.2f} s of waiting, as for an accelerator"
        )
        parts.append((title, scaling_table(document["scaling"])))
    return parts


def text_of(document: Record) -> str:
    parts = [f"Measured on: {report.machine_text(document['machine'])}."]
    parts += [f"**{title}**\n\n{table}" for title, table in sections(document)]
    return "\n\n".join(parts)
