"""Plots of the measured linearity, as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pictures
from matplotlib import pyplot
from pictures import HOROVOD, OTHERS
from pictures import OURS as HOOK

from scaled import contenders, tables

Record = dict[str, Any]


def color(name: str) -> str:
    if name.startswith(contenders.HOOK):
        return HOOK
    return HOROVOD if name.startswith(contenders.HOROVOD) else OTHERS


def shown(run: Record) -> list[Record]:
    return [row for row in run["rows"] if row["contender"] != contenders.SERIAL]


def bars(axis: Any, run: Record) -> None:
    """Plot one number of devices: linearity of each contender, and its samples per second."""
    rows = shown(run)
    names = [row["contender"] for row in rows]
    drawn = axis.barh(names, [row["linearity"] or 0 for row in rows], color=[*map(color, names)])
    labels = [f"{row['linearity'] or 0:.2f}  ({row['samples_per_second']:.3g}/s)" for row in rows]
    axis.bar_label(drawn, labels, padding=3, fontsize=7)
    axis.margins(x=0.3)  # room for the numbers
    axis.invert_yaxis()
    axis.set_xlabel("linearity")


def lines(axis: Any, runs: list[Record]) -> None:
    """Plot several numbers of devices: linearity against the number."""
    for name in dict.fromkeys(row["contender"] for run in runs for row in shown(run)):
        found = {
            run["count"]: row["linearity"] for run in runs for row in shown(run) if row["contender"] == name
        }
        dashes = "--" if color(name) == OTHERS else "-." if color(name) == HOROVOD else "-"
        axis.plot([1, *found], [1.0, *found.values()], f"o{dashes}", label=name, markersize=4)
    axis.set_xticks(sorted({1, *(run["count"] for run in runs)}))
    axis.set_ylim(0, 1.1)
    axis.set_xlabel(runs[0]["kind"])
    axis.set_ylabel("linearity")
    axis.legend(fontsize=6)


def draw(document: Record, folder: str) -> list[Path]:
    """Write scaling.svg, a panel for each family of runs; return its path, or nothing if nothing ran."""
    families = [[run for run in runs if run["count"] > 1] for runs in tables.families(document["runs"])]
    families = [runs for runs in families if runs]
    if not families:
        return []
    with pictures.style():
        return pictures.saved({"scaling": figure_of(families)}, Path(folder))


def figure_of(families: list[list[Record]]) -> Any:
    height = 1.2 + 0.24 * max(len(shown(run)) for runs in families for run in runs)
    figure, axes = pyplot.subplots(len(families), figsize=(8, height * len(families)), squeeze=False)
    for runs, axis in zip(families, axes[:, 0], strict=True):
        first, is_one = runs[0], len(runs) == 1
        bars(axis, first) if is_one else lines(axis, runs)
        ratio = "" if first["ratio"] is None or not is_one else f", W/C = {first['ratio']:.1f}"
        where = "one host" if first["kind"] == "processes" else first["rate"]
        axis.set_title(f"{first['model']}, {tables.where(first) if is_one else where}{ratio}")
    return figure
