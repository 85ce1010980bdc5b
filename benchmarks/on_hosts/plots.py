"""Pictures of the measurements, as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pictures
from matplotlib import pyplot
from pictures import LIMIT, OTHERS, OURS

from on_hosts import tables, training

Record = dict[str, Any]


def color(name: str) -> str:
    return OTHERS if name.startswith(("MPI", "gloo", "DDP")) or name == training.ALONE else OURS


def allreduce(rows: list[Record]) -> Any:
    """The largest size: time as bars, the wire limit of each as a mark."""
    largest = max(row["bytes"] for row in rows)
    rows = [row for row in rows if row["bytes"] == largest]
    places = list(dict.fromkeys(tables.where(row) for row in rows))
    figure, axes = pyplot.subplots(1, len(places), figsize=(5.5 * len(places), 4), squeeze=False)
    for place, axis in zip(places, axes[0], strict=True):
        here = [row for row in rows if tables.where(row) == place]
        names = [row["contender"] for row in here]
        axis.barh(names, [row["seconds"] for row in here], color=[color(name) for name in names])
        limits = [row["limit"] for row in here]
        axis.plot(limits, names, "|", color=LIMIT, markersize=18, markeredgewidth=2, label="wire limit")
        axis.invert_yaxis()
        axis.set_xlabel("seconds")
        axis.set_title(f"Allreduce of {tables.size_text(largest)}, {place}")
        axis.legend()
    return figure


def training_steps(sets: list[list[Record]]) -> Any:
    """Samples per second."""
    figure, axes = pyplot.subplots(1, len(sets), figsize=(5.5 * len(sets), 4), squeeze=False)
    for rows, axis in zip(sets, axes[0], strict=True):
        shown = [row for row in rows if row["contender"] != training.ALONE]
        names = [row["contender"] for row in shown]
        bars = axis.barh(names, [row["samples_per_second"] for row in shown], color=[*map(color, names)])
        axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=8)
        axis.margins(x=0.15)  # room for the numbers
        first = rows[0]
        axis.invert_yaxis()
        axis.set_xlabel("samples/s")
        ratio = first["wire"] / tables.computing(rows)
        axis.set_title(f"{first['model']}, {tables.where(first)}, W/C = {ratio:.1f}")
    return figure


def scaling(rows: list[Record]) -> Any:
    """Efficiency against the number of hosts."""
    figure, axis = pyplot.subplots(figsize=(5.5, 4))
    (alone,) = (row for row in rows if row["contender"] == training.ALONE)
    for name in dict.fromkeys(row["contender"] for row in rows if row is not alone):
        own = [alone, *(row for row in rows if row["contender"] == name)]
        counts = [row["hosts"] for row in own]
        dashes = "--" if color(name) == OTHERS else "-"
        axis.plot(counts, [tables.efficiency(row, alone) for row in own], f"o{dashes}", label=name)
    axis.set_xticks(sorted({row["hosts"] for row in rows}))
    axis.set_ylim(0, 1.05)
    axis.set_xlabel("hosts")
    axis.set_ylabel("efficiency")
    axis.set_title(f"Scaling, {rows[0]['model']}, {rows[0]['rate']}")
    axis.legend()
    return figure


def draw(document: Record, folder: str) -> list[Path]:
    """Write a picture of each part that was measured; return their paths."""
    figures = {}
    with pictures.style():
        if document["allreduce"]:
            figures["cluster_allreduce"] = allreduce(document["allreduce"])
        if document["training"]:
            figures["cluster_training"] = training_steps(document["training"])
        if document["scaling"]:
            figures["cluster_scaling"] = scaling(document["scaling"])
        return pictures.saved(figures, Path(folder))
