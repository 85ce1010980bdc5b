"""Pictures of the linearity that was measured, as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

from scaled import contenders, tables

matplotlib.use("Agg")  # no display

from matplotlib import pyplot

Record = dict[str, Any]
HOOK, HOROVOD, OTHERS = "#2a6fbb", "#3a9d6e", "#9a9a9a"


def color(name: str) -> str:
    if name.startswith(contenders.HOOK):
        return HOOK
    return HOROVOD if name.startswith(contenders.HOROVOD) else OTHERS


def shown(run: Record) -> list[Record]:
    return [row for row in run["rows"] if row["contender"] != contenders.SERIAL]


def bars(axis: Any, run: Record) -> None:
    """One number of devices: linearity of each contender, and its samples per second."""
    rows = shown(run)
    names = [row["contender"] for row in rows]
    drawn = axis.barh(names, [row["linearity"] or 0 for row in rows], color=[*map(color, names)])
    labels = [f"{row['linearity'] or 0:.2f}  ({row['samples_per_second']:.3g}/s)" for row in rows]
    axis.bar_label(drawn, labels, padding=3, fontsize=7)
    axis.margins(x=0.3)  # room for the numbers
    axis.invert_yaxis()
    axis.set_xlabel("linearity")


def lines(axis: Any, runs: list[Record]) -> None:
    """Several: linearity against the number of devices."""
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
    """Write scaling.svg, a panel for each family of runs; return its path, or nothing where nothing ran."""
    families = [[run for run in runs if run["count"] > 1] for runs in tables.families(document["runs"])]
    families = [runs for runs in families if runs]
    if not families:
        return []
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    height = 1.2 + 0.24 * max(len(shown(run)) for runs in families for run in runs)
    figure, axes = pyplot.subplots(len(families), figsize=(8, height * len(families)), squeeze=False)
    for runs, axis in zip(families, axes[:, 0], strict=True):
        bars(axis, runs[0]) if len(runs) == 1 else lines(axis, runs)
        ratio = "" if runs[0]["ratio"] is None or len(runs) > 1 else f", W/C = {runs[0]['ratio']:.1f}"
        place = (
            tables.where(runs[0])
            if len(runs) == 1
            else "one host"
            if runs[0]["kind"] == "processes"
            else runs[0]["rate"]
        )
        axis.set_title(f"{runs[0]['model']}, {place}{ratio}", fontsize=10)
    figure.tight_layout()
    path = target / "scaling.svg"
    figure.savefig(path)
    pyplot.close(figure)
    return [path]
