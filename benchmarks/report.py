"""Common parts of the benchmarks: statistics, tables, facts about the machine, files of figures, options."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import comb
from pathlib import Path
from statistics import median, quantiles
from typing import Any, TypeVar

GIGA = 1e9
MEGA = 1_000_000  # 1 MB is 10^6 bytes and 1 KB is 10^3, here and in every table

Record = dict[str, Any]
T = TypeVar("T")


def spread(samples: Sequence[float]) -> float:
    """Return the interquartile range over the median: 0.05 says that half of the samples lie within 5 %."""
    if len(samples) < 2:
        return 0.0
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return (high - low) / median(samples)


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """Return two order statistics that enclose the median with at least 95 % confidence.

    The median lies outside the k-th smallest and largest of n samples with probability 2 P(Bin(n, 1/2) < k).
    Fewer than 6 samples cannot reach 95 %; the interval is then their whole range.
    """
    ordered, count = sorted(samples), len(samples)
    k = 1
    while 2 * sum(comb(count, below) for below in range(k + 1)) / 2**count <= 0.05:
        k += 1
    return ordered[k - 1], ordered[-k]


def rounds_of(contenders: Sequence[T], rounds: int) -> Iterator[tuple[int, list[T]]]:
    """Yield (round, its order): each round begins with another contender than the round before."""
    for number in range(rounds):
        shift = number % len(contenders)
        yield number, [*contenders[shift:], *contenders[:shift]]


def in_turn(contenders: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
    return ((number, each) for number, order in rounds_of(contenders, rounds) for each in order)


def size_text(size: int) -> str:
    """1000 -> "1 KB", 25_000_000 -> "25 MB"."""
    for unit, name in ((MEGA, "MB"), (1000, "KB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def time_text(seconds: float) -> str:
    """Return microseconds below one millisecond, milliseconds above, with three significant digits."""
    value, unit = (seconds * 1e6, "us") if seconds < 1e-3 else (seconds * 1e3, "ms")
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f} {unit}"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a text table, also valid Markdown; the first `left` columns are aligned left, others right."""
    widths = [max(len(cell) for cell in column) for column in zip(headings, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(aligned) + " |"

    rule = [("-" * width) if i < left else ("-" * (width - 1) + ":") for i, width in enumerate(widths)]
    return "\n".join([line(headings), line(rule), *map(line, rows)])


class _Cells(string.Formatter):
    """str.format with the formats "time", "size" and "MB"; None is empty."""

    def format_field(self, value: Any, spec: str) -> str:
        if value is None:
            return ""
        own = {"time": time_text, "size": size_text, "MB": lambda size: f"{size / MEGA:.1f}"}.get(spec)
        return own(value) if own else format(value, spec)


_CELLS = _Cells()
Columns = Mapping[str, str | Callable[[Record], str]]


def table_of(rows: Sequence[Record], columns: Columns, left: int = 1) -> str:
    """Return the table of records. A column is a heading, and a function or a format of a record's cell.

    A heading ends at its "#", so that two columns may have the same.
    """
    def cell(of: str | Callable[[Record], str], row: Record) -> str:
        return of(row) if callable(of) else _CELLS.vformat(of, (), row)

    lines = [[cell(of, row) for of in columns.values()] for row in rows]
    return table([heading.partition("#")[0] for heading in columns], lines, left)


def processor() -> str:
    """Return the processor's name from the kernel."""
    cpuinfo = Path("/proc/cpuinfo")
    for row in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        if row.startswith("model name"):
            return row.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def machine() -> Record:
    """Return facts about the machine; load is the one-minute average at the start of the run."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def machine_text(facts: Record) -> str:
    return ", ".join(f"{name}: {value}" for name, value in facts.items())


def measured_on(facts: Record) -> str:
    return f"Measured on: {machine_text(facts)}."


def read_json(path: str | Path) -> Any:
    return json.loads(Path(path).read_text())


def write_json(path: str | Path, document: Any) -> None:
    """Write the whole file or nothing: a reader never finds half a document. Without a path do nothing."""
    if path:
        target = Path(path)
        partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(target)


def write_csv(path: str | Path, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Add rows to a CSV file; a new file begins with the headings."""
    with Path(path).open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([*([] if file.tell() else [headings]), *rows])


OPTIONS: dict[str, dict[str, Any]] = {  # of several programs
    "np": {"type": int, "default": 2, "metavar": "N", "help": "ranks on this host (default %(default)s)"},
    "device": {"choices": ["cpu", "cuda"], "default": "cpu", "help": "where the tensors are (default cpu)"},
    "rounds": {"type": int, "help": "of all contenders, in turn (default %(default)s)"},
    "limit": {"type": float, "help": "seconds after which a job is ended (default %(default)s)"},
    "link-seconds": {"type": float, "default": 2.0, "help": "of each measurement of the cables (default 2)"},
    "only": {"nargs": "+", "default": [], "metavar": "NAME", "help": "these cells, by how their names begin"},
    "results": {"type": Path, "metavar": "FOLDER", "help": "folder of results, which are not made again"},
    "list": {"action": "store_true", "help": "print what would run, and run nothing"},
    "out": {"default": "", "help": "also write the figures to this file"},
    "plots": {"default": "", "metavar": "FOLDER", "help": "also draw them as SVG, into this folder"},
    "shown": {"nargs": "+", "metavar": "FILE", "help": "measure nothing: show what was written"},
    "quick": {"action": "store_true", "help": "tiny sizes, once: shows that it runs, no more"},
}  # fmt: skip


def options(description: str, common: str, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with these of OPTIONS, separated by blanks. `defaults` are by name."""
    parser = argparse.ArgumentParser(description=description)
    for name in common.split():
        parser.add_argument(f"--{name}", **OPTIONS[name])
    parser.set_defaults(**defaults)
    return parser

