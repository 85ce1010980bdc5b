"""Helpers of the benchmarks: statistics over rounds, tables of text, and a description of the machine."""

from __future__ import annotations

import csv
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any

GIGA = 1e9
MEGA = 1_000_000  # 1 MB is 10^6 bytes and 1 KB is 10^3, here and in every table


def spread(samples: Sequence[float]) -> float:
    """Return the interquartile range over the median: 0.05 says that half of the samples lie within 5 %."""
    if len(samples) < 2:
        return 0.0
    low, _, high = quantiles(samples, n=4, method="inclusive")
    return (high - low) / median(samples)


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
    """Return a text table, also valid Markdown; the first `left` columns are aligned left, the others right.

    An empty row separates groups; Markdown has no separator, so it is printed as a row of blanks.
    """
    filled = [list(row) if row else [""] * len(headings) for row in rows]
    widths = [max(len(cell) for cell in column) for column in zip(headings, *filled, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "| " + " | ".join(aligned) + " |"

    rule = [("-" * width) if i < left else ("-" * (width - 1) + ":") for i, width in enumerate(widths)]
    return "\n".join([line(headings), line(rule), *(line(row) for row in filled)])


def processor() -> str:
    """Return the processor's name from the kernel."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for row in cpuinfo.read_text().splitlines():
            if row.startswith("model name"):
                return row.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def available_memory() -> int:
    """Return the bytes that can be allocated without swapping, by the kernel's estimate."""
    for row in Path("/proc/meminfo").read_text().splitlines():
        if row.startswith("MemAvailable:"):
            return int(row.split()[1]) * 1024
    raise OSError("/proc/meminfo has no MemAvailable")


def machine() -> dict[str, Any]:
    """Return facts about the machine; load is the one-minute average at the start of the run."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
    }


def machine_text(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in facts.items())


def write_json(path: str, document: dict[str, Any]) -> None:
    """Write the whole file or nothing: a reader never finds half a document."""
    target = Path(path)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps(document, indent=1) + "\n")
    partial.replace(target)


def write_csv(path: str | Path, headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Add rows to a CSV file; a new file begins with the headings."""
    with Path(path).open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([*([] if file.tell() else [headings]), *rows])
