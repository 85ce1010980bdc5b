"""Plots of the measurements, as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pictures
from matplotlib import pyplot
from pictures import LIMIT, OTHERS, OURS

from horovod.drawing import palette, svg
from on_hosts import tables, training

Record = dict[str, Any]


def color(name: str) -> str:
    return OTHERS if name.startswith(("MPI", "gloo", "DDP")) or name == training.ALONE else OURS


def allreduce(rows: list[Record]) -> Any:
    """Plot the largest size: time as bars, the wire limit of each as a mark."""
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


def step_time(rows: list[Record]) -> str:
    """Return README's plot of one set of training steps: an SVG for light and dark pages, seconds as bars."""
    seconds = {row["contender"]: float(row["seconds"]) for row in rows}
    names = {"DDP": "DDP", "DDP fp16": "DDP, fp16 hook", "bit8": "bit8", "int4": "int4"}
    names = {name: shown for name, shown in names.items() if name in seconds}
    left, top, height, full = 112.0, 52.0, 24.0, 240.0
    first, longest = rows[0], max(seconds.values())
    parts = [svg.box(0, 0, 400, top + 32 * len(names) + 26, 8, fill="var(--paper)")]
    title = f"A training step of {first['model'].upper().replace('VGG', 'VGG-')}, {tables.where(first)}"
    parts.append(svg.text((12, 26), title.replace("gbit", " Gbit/s"), 14, is_bold=True, fill="var(--ink)"))
    for place, (name, shown) in enumerate(names.items()):
        y, length = top + 32 * place, full * seconds[name] / longest
        paint = f"var(--{'line' if name.startswith('DDP') else 'blue'})"
        parts.append(svg.text((left - 8, y + 17), shown, 12, "end", fill="var(--ink)"))
        parts.append(svg.box(left, y, length, height, 3, fill=paint))
        end_of_bar = (left + length + 6, y + 17)
        parts.append(svg.text(end_of_bar, f"{seconds[name]:.2f} s", 12, fill="var(--quiet)"))
    computing, end = left + full * seconds[training.ALONE] / longest, top + 32 * len(names)
    edge = [(computing, top - 8), (computing, end)]
    parts.append(svg.line(edge, stroke="var(--accent)", stroke_width=1.5))
    note = f"computing alone: {seconds[training.ALONE]:.2f} s"
    parts.append(svg.text((computing, end + 14), note, 11, fill="var(--accent)"))
    style = svg.element("style", palette.rules("svg", ["paper", "line", "quiet", "ink", "accent", "blue"]))
    said = ", ".join(f"{shown} {seconds[name]:.2f} s" for name, shown in names.items())
    body = "\n".join([style, *parts])
    return svg.document(400, end + 26, "Time of a training step", body, f"{note}; {said}.")


def scaling(rows: list[Record]) -> Any:
    """Plot efficiency against the number of hosts."""
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
    """Write a plot of each part that was measured; return their paths."""
    figures = {}
    with pictures.style():
        if document["allreduce"]:
            figures["cluster_allreduce"] = allreduce(document["allreduce"])
        if document["training"]:
            figures["cluster_training"] = training_steps(document["training"])
        if document["scaling"]:
            figures["cluster_scaling"] = scaling(document["scaling"])
        paths = pictures.saved(figures, Path(folder))
    if document["training"]:
        paths.append(Path(folder) / "step_time.svg")
        paths[-1].write_text(step_time(document["training"][0]), encoding="utf-8")
    return paths
