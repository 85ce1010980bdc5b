"""Plots of cluster.py, scaling.py and convergence.py: SVG that is legible on light and dark pages.

The background is transparent, text and axes are middle grey, and equal results give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import contenders
import matplotlib
import tables
from convergence_results import BASELINE, UNIT, By, Results, label, limit_of, paired
from convergence_tasks import TASKS
from report import Record

from horovod.drawing import palette, svg
from horovod.drawing.palette import light
from horovod.lab.intervals import estimate

matplotlib.use("svg")  # no display

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

GREY = light("line")
OURS, HOROVOD, OTHERS, LIMIT = light("blue"), light("green"), GREY, light("orange")
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
    "font.size": 9,
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.2,
    "figure.constrained_layout.use": True,
}
POINTS = 100  # of a curve of losses: each is the mean of the steps up to it


def saved(figures: Mapping[str, Callable[[], Figure]], folder: str | Path) -> None:
    """Draw each figure in this style, and write it as <name>.svg."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context(STYLE):
        drawn = {name: draw() for name, draw in figures.items()}
        for name, figure in drawn.items():
            figure.savefig(Path(folder) / f"{name}.svg", transparent=True, metadata={"Date": None})
            pyplot.close(figure)


def side_by_side(count: int) -> tuple[Figure, Sequence[Axes]]:
    figure, axes = pyplot.subplots(1, count, figsize=(5.5 * count, 4), squeeze=False)
    return figure, axes[0]


# cluster.py


def draw_cluster(document: Record, folder: str) -> None:
    """Write a plot of each part that was measured."""
    drawings: dict[str, Callable[[Any], Figure]] = {
        "allreduce": sums, "training": training_steps, "scaling": efficiencies,
    }  # fmt: skip
    figures = {}
    for part, draw in drawings.items():
        if document[part]:
            figures[f"cluster_{part}"] = lambda draw=draw, rows=document[part]: draw(rows)
    saved(figures, folder)
    if document["training"]:
        text = step_time(document["training"][0])
        (Path(folder) / "step_time.svg").write_text(text, encoding="utf-8")


def colour_between_hosts(name: str) -> str:
    return OTHERS if name.startswith(("MPI", "gloo", "DDP")) or name == contenders.ALONE else OURS


def sums(rows: list[Record]) -> Figure:
    """Plot the largest size: time as bars, the wire limit of each as a mark."""
    largest = max(row["bytes"] for row in rows)
    rows = [row for row in rows if row["bytes"] == largest]
    places = list(dict.fromkeys(tables.where(row) for row in rows))
    figure, axes = side_by_side(len(places))
    for place, axis in zip(places, axes, strict=True):
        here = [row for row in rows if tables.where(row) == place]
        names = [row["contender"] for row in here]
        axis.barh(names, [row["seconds"] for row in here], color=[*map(colour_between_hosts, names)])
        limits = [row["limit"] for row in here]
        axis.plot(limits, names, "|", color=LIMIT, markersize=18, markeredgewidth=2, label="wire limit")
        axis.invert_yaxis()
        axis.set_xlabel("seconds")
        axis.set_title(f"Allreduce of {tables.size_text(largest)}, {place}")
        axis.legend()
    return figure


def training_steps(sets: list[list[Record]]) -> Figure:
    figure, axes = side_by_side(len(sets))
    for rows, axis in zip(sets, axes, strict=True):
        shown = [row for row in rows if row["contender"] != contenders.ALONE]
        names = [row["contender"] for row in shown]
        rates = [row["samples_per_second"] for row in shown]
        bars = axis.barh(names, rates, color=[*map(colour_between_hosts, names)])
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
    alone, end = seconds[contenders.ALONE], top + 32 * len(names)
    computing = left + full * alone / longest
    edge = [(computing, top - 8), (computing, end)]
    parts.append(svg.line(edge, stroke="var(--accent)", stroke_width=1.5))
    note = f"computing alone: {alone:.2f} s"
    parts.append(svg.text((computing, end + 14), note, 11, fill="var(--accent)"))
    style = svg.element("style", palette.rules("svg", ["paper", "line", "quiet", "ink", "accent", "blue"]))
    said = ", ".join(f"{shown} {seconds[name]:.2f} s" for name, shown in names.items())
    body = "\n".join([style, *parts])
    return svg.document(400, end + 26, "Time of a training step", body, f"{note}; {said}.")


def efficiencies(rows: list[Record]) -> Figure:
    """Plot efficiency against the number of hosts."""
    figure, (axis,) = side_by_side(1)
    found = tables.efficiencies(rows)
    for name in dict.fromkeys(name for name, _ in found if name != contenders.ALONE):
        own = {count: share for (other, count), share in found.items() if other in (contenders.ALONE, name)}
        dashes = "--" if colour_between_hosts(name) == OTHERS else "-"
        axis.plot([*own], [*own.values()], f"o{dashes}", label=name)
    axis.set_xticks(sorted({row["hosts"] for row in rows}))
    axis.set_ylim(0, 1.05)
    axis.set_xlabel("hosts")
    axis.set_ylabel("efficiency")
    axis.set_title(f"Scaling, {rows[0]['model']}, {rows[0]['rate']}")
    axis.legend()
    return figure


# scaling.py


def draw_scaling(document: Record, folder: str) -> None:
    """Write scaling.svg, a panel for each family of runs; nothing if no run had several devices."""
    families = [[run for run in runs if run["count"] > 1] for runs in tables.families(document["runs"])]
    families = [runs for runs in families if runs]
    if families:
        saved({"scaling": lambda: linearities(families)}, folder)


def linearities(families: list[list[Record]]) -> Figure:
    height = 1.2 + 0.24 * max(len(shown(run)) for runs in families for run in runs)
    figure, axes = pyplot.subplots(len(families), figsize=(8, height * len(families)), squeeze=False)
    for runs, axis in zip(families, axes[:, 0], strict=True):
        first, is_one = runs[0], len(runs) == 1
        bars(axis, first) if is_one else lines(axis, runs)
        ratio = "" if first["ratio"] is None or not is_one else f", W/C = {first['ratio']:.1f}"
        where = "one host" if first["kind"] == "processes" else first["rate"]
        axis.set_title(f"{first['model']}, {tables.where(first) if is_one else where}{ratio}")
    return figure


def colour_of_way(name: str) -> str:
    if name.startswith(contenders.HOOK):
        return OURS
    return HOROVOD if name.startswith(contenders.HOROVOD) else OTHERS


def shown(run: Record) -> list[Record]:
    return [row for row in run["rows"] if row["contender"] != contenders.SERIAL]


def bars(axis: Axes, run: Record) -> None:
    """Plot one number of devices: linearity of each contender, and its samples per second."""
    rows = shown(run)
    names = [row["contender"] for row in rows]
    drawn = axis.barh(names, [row["linearity"] or 0 for row in rows], color=[*map(colour_of_way, names)])
    labels = [f"{row['linearity'] or 0:.2f}  ({row['samples_per_second']:.3g}/s)" for row in rows]
    axis.bar_label(drawn, labels, padding=3, fontsize=7)
    axis.margins(x=0.3)  # room for the numbers
    axis.invert_yaxis()
    axis.set_xlabel("linearity")


def lines(axis: Axes, runs: list[Record]) -> None:
    """Plot several numbers of devices: linearity against the number."""
    dashes = {OTHERS: "--", HOROVOD: "-.", OURS: "-"}
    rows = [(run["count"], row) for run in runs for row in shown(run)]
    for name in dict.fromkeys(row["contender"] for _, row in rows):
        found = {count: row["linearity"] for count, row in rows if row["contender"] == name}
        form = f"o{dashes[colour_of_way(name)]}"
        axis.plot([1, *found], [1.0, *found.values()], form, label=name, markersize=4)
    axis.set_xticks(sorted({1, *(run["count"] for run in runs)}))
    axis.set_ylim(0, 1.1)
    axis.set_xlabel(runs[0]["kind"])
    axis.set_ylabel("linearity")
    axis.legend(fontsize=6)


# convergence.py


def draw_convergence(results: Results, folder: Path) -> None:
    """Write convergence_<task>.svg for each task, and convergence_differences.svg."""
    figures: dict[str, Callable[[], Figure]] = {
        f"convergence_{task}": lambda task=task, by=by: curves(task, by) for task, by in results.items()
    }
    saved(figures | {"convergence_differences": lambda: differences(results)}, folder)


def curves(task: str, by_compression: By) -> Figure:
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    draw = draw_losses if TASKS[task].judged_by == "loss" else draw_accuracies
    draw(left, right, by_compression)
    left.set_title(f"{task}: mean of {len(by_compression[BASELINE])} seeds")
    left.set_xlabel("step")
    left.legend(ncols=2)
    return figure


def colour(compressions: Sequence[str], name: str) -> str:
    """Return the colours: float32 is grey, the others have a colour by their place."""
    return GREY if name == BASELINE else f"C{[c for c in compressions if c != BASELINE].index(name) % 10}"


def block_means(losses: Sequence[float]) -> tuple[list[int], list[float]]:
    """Return (last step, mean) of each of about POINTS equal pieces of a curve."""
    size = max(1, len(losses) // POINTS)
    ends = list(range(size, len(losses) + 1, size))
    return ends, [mean(losses[end - size : end]) for end in ends]


def means(samples: Sequence[Sequence[float]]) -> list[float]:
    return [mean(column) for column in zip(*samples, strict=True)]


def draw_losses(left: Axes, right: Axes, by_compression: By) -> None:
    """Draw the training loss by step, and its distance from float32's, seed by seed."""
    found = {
        name: {seed: block_means(run["training_losses"]) for seed, run in runs.items()}
        for name, runs in by_compression.items()
    }
    for name, runs in found.items():
        shade = colour(list(by_compression), name)
        steps = next(iter(runs.values()))[0]
        left.plot(steps, means([losses for _, losses in runs.values()]), color=shade, label=name)
        if name == BASELINE:
            continue
        pairs = [(runs[seed][1], found[BASELINE][seed][1]) for seed in sorted(runs.keys() & found[BASELINE])]
        ratios = [[100 * (a / b - 1) for a, b in zip(*pair, strict=True)] for pair in pairs]
        right.plot(steps, means(ratios), color=shade, label=label(name))
    right.axhline(0, color=GREY, linewidth=0.8)
    left.set_ylabel("training loss, nats per byte")
    right.set_title("distance from float32")
    right.set_ylabel("%")
    right.set_xlabel("step")


def draw_accuracies(left: Axes, right: Axes, by_compression: By) -> None:
    """Draw the accuracy on held-out data by step, and the final accuracy of every seed."""
    names = list(by_compression)
    for place, (name, runs) in enumerate(by_compression.items()):
        shade = colour(names, name)
        accuracies = [[100 * point["accuracy"] for point in run["curve"]] for run in runs.values()]
        steps = [point["step"] for point in next(iter(runs.values()))["curve"]]
        left.plot(steps, means(accuracies), color=shade, label=label(name))
        finals = [100 * run["accuracy"] for run in runs.values()]
        right.plot(finals, [place] * len(finals), "o", color=shade, markersize=4, alpha=0.6)
        right.plot(mean(finals), place, "|", color=shade, markersize=16, markeredgewidth=2)
    left.set_ylabel("accuracy on held-out data, %")
    name_rows(right, names)
    right.set_title("final accuracy of every seed, and their mean, %")


def differences(results: Results) -> Figure:
    """Draw a panel per task: the mean difference from float32, its 95 % interval, and the limit as a band."""
    names = list(dict.fromkeys(name for by in results.values() for name in by if name != BASELINE))
    size = (9, 1.2 + 0.3 * len(names))
    figure, panels = pyplot.subplots(1, len(results), figsize=size, sharey=True, squeeze=False)
    for axes, (task, by_compression) in zip(panels[0], results.items(), strict=True):
        judged_by = TASKS[task].judged_by
        for place, name in enumerate(names):
            if name not in by_compression:
                continue
            found = estimate(paired(by_compression[name], by_compression[BASELINE], judged_by))
            looks = {"fmt": "o", "color": colour(names, name), "capsize": 3, "markersize": 4}
            axes.errorbar(found.mean, place, xerr=found.half_width, **looks)
            limit = limit_of(task, name)
            if limit is not None:
                axes.barh(place, 2 * limit, left=-limit, height=0.7, color=GREY, alpha=0.25)
        axes.axvline(0, color=GREY, linewidth=0.8)
        axes.set_title(f"{task}: difference of {judged_by} from float32")
        axes.set_xlabel(f"{UNIT[judged_by]}; 95 % interval; grey: the limit")
    name_rows(panels[0][0], names)
    return figure


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Name the compressions down the axis, the first on top."""
    axes.set_yticks(range(len(names)), labels=[label(name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
