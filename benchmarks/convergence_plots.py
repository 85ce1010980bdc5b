"""Plots of benchmarks/convergence.py, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pictures
from convergence_results import BASELINE, UNIT, By, Results, label, limit_of
from convergence_statistics import paired
from convergence_tasks import TASKS
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pictures import GREY

from horovod.lab.intervals import estimate

POINTS = 100  # of a curve: each is the mean of the steps up to it


def draw(results: Results, folder: Path) -> list[Path]:
    """Write convergence_<task>.svg for each task, and convergence_differences.svg; return their paths."""
    figures = {}
    with pictures.style():
        for task, by_compression in results.items():
            figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
            if TASKS[task].judged_by == "loss":
                draw_losses(left, right, by_compression)
            else:
                draw_accuracies(left, right, by_compression)
            left.set_title(f"{task}: mean of {len(by_compression[BASELINE])} seeds")
            left.set_xlabel("step")
            left.legend(ncols=2)
            figures[f"convergence_{task}"] = figure
        figures["convergence_differences"] = draw_differences(results)
        return pictures.saved(figures, folder)


def colour(compressions: Sequence[str], name: str) -> str:
    """Return the colours: float32 is grey, the others have a colour by their place."""
    return GREY if name == BASELINE else f"C{[c for c in compressions if c != BASELINE].index(name) % 10}"


def block_means(losses: Sequence[float]) -> tuple[list[int], list[float]]:
    """Return (last step, mean) of each of about POINTS equal pieces of a curve."""
    size = max(1, len(losses) // POINTS)
    ends = list(range(size, len(losses) + 1, size))
    return ends, [mean(losses[end - size : end]) for end in ends]


def draw_losses(left: Axes, right: Axes, by_compression: By) -> None:
    """Draw the training loss by step, and its distance from float32's, seed by seed."""
    baseline = by_compression[BASELINE]
    for name, runs in by_compression.items():
        shade = colour(list(by_compression), name)
        steps = block_means(next(iter(runs.values()))["training_losses"])[0]
        curves = {seed: block_means(run["training_losses"])[1] for seed, run in runs.items()}
        left.plot(
            steps, [mean(column) for column in zip(*curves.values(), strict=True)], color=shade, label=name
        )
        if name == BASELINE:
            continue
        common = sorted(curves.keys() & baseline)
        theirs = {seed: block_means(baseline[seed]["training_losses"])[1] for seed in common}
        ratios = [[100 * (a / b - 1) for a, b in zip(curves[s], theirs[s], strict=True)] for s in common]
        right.plot(
            steps, [mean(column) for column in zip(*ratios, strict=True)], color=shade, label=label(name)
        )
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
        curves = [[100 * point["accuracy"] for point in run["curve"]] for run in runs.values()]
        steps = [point["step"] for point in next(iter(runs.values()))["curve"]]
        left.plot(
            steps, [mean(column) for column in zip(*curves, strict=True)], color=shade, label=label(name)
        )
        finals = [100 * run["accuracy"] for run in runs.values()]
        right.plot(finals, [place] * len(finals), "o", color=shade, markersize=4, alpha=0.6)
        right.plot(mean(finals), place, "|", color=shade, markersize=16, markeredgewidth=2)
    left.set_ylabel("accuracy on held-out data, %")
    name_rows(right, names)
    right.set_title("final accuracy of every seed, and their mean, %")


def draw_differences(results: Results) -> Figure:
    """Draw a panel per task: the mean difference from float32, its 95 % interval, and the limit as a band."""
    names = list(dict.fromkeys(name for by in results.values() for name in by if name != BASELINE))
    figure, panels = pyplot.subplots(
        1, len(results), figsize=(9, 1.2 + 0.3 * len(names)), sharey=True, squeeze=False
    )
    for axes, (task, by_compression) in zip(panels[0], results.items(), strict=True):
        judged_by = TASKS[task].judged_by
        for place, name in enumerate(names):
            if name not in by_compression:
                continue
            found = estimate(paired(by_compression[name], by_compression[BASELINE], judged_by))
            shade = colour(names, name)
            axes.errorbar(
                found.mean, place, xerr=found.half_width, fmt="o", color=shade, capsize=3, markersize=4
            )
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
