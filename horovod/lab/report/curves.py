"""Loss and accuracy against epochs and against time: a line for each row, the mean over its seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from horovod.lab.report.names import Names
from horovod.lab.report.palette import Stroke, stroke
from horovod.lab.report.words import Words
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL, Run

__all__ = ["DRAWN", "POINTS", "loss_curve"]

POINTS = 40  # of a curve of losses: each is the mean of the steps since the previous one
SIZE = (4.9, 3.7)  # inches
Curve = tuple[list[float], list[float]]


def loss_curve(run: Run, is_by_time: bool) -> Curve:
    """The mean loss of each piece, and its middle in epochs or seconds."""
    steps = len(run.step_losses)
    edges = sorted({round(i * steps / POINTS) for i in range(POINTS + 1)})
    times = [0.0, *accumulate(run.step_seconds)]
    per_epoch = steps / run.plan.epochs
    across, up = [], []
    for first, last in pairwise(edges):
        middle = (times[first] + times[last]) / 2 if is_by_time else (first + last) / 2 / per_epoch
        across.append(middle)
        up.append(mean(run.step_losses[first:last]))
    return across, up


def accuracy_curve(run: Run, is_by_time: bool) -> Curve:
    across = [epoch.seconds if is_by_time else float(epoch.number) for epoch in run.epochs]
    return across, [100 * epoch.accuracy for epoch in run.epochs]


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The pointwise mean over seeds. Curves of a row have one length unless a run had other data.

    Omits points that are not finite, which a diverged training has in one seed or all.
    """
    columns = [list(zip(*parts, strict=False)) for parts in zip(*curves, strict=True)]
    points = zip(map(mean, columns[0]), map(mean, columns[1]), strict=True)
    finite = [(across, up) for across, up in points if math.isfinite(up)]
    return [across for across, _ in finite], [up for _, up in finite]


def draw_loss(rows: Sequence[Row], names: Names, words: Words, is_by_time: bool) -> Figure:
    figure, axes = empty_figure(words("loss_axis"), words("time_axis" if is_by_time else "epoch_axis"))
    for row, drawn in strokes(rows, names):
        curve = mean_curve([loss_curve(run, is_by_time) for run in row.runs])
        axes.plot(*curve, color=drawn.colour, linestyle=drawn.dashes, label=names.series(row))
        tested = mean_curve([test_losses(run, is_by_time) for run in row.runs])
        axes.plot(*tested, color=drawn.colour, linestyle="none", marker=drawn.marker)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    return with_legend(figure, axes)


def test_losses(run: Run, is_by_time: bool) -> Curve:
    return accuracy_curve(run, is_by_time)[0], [epoch.test_loss for epoch in run.epochs]


def draw_accuracy(rows: Sequence[Row], names: Names, words: Words, is_by_time: bool) -> Figure:
    figure, axes = empty_figure(words("accuracy_axis"), words("time_axis" if is_by_time else "epoch_axis"))
    for row, drawn in strokes(rows, names):
        curve = mean_curve([accuracy_curve(run, is_by_time) for run in row.runs])
        axes.plot(
            *curve, color=drawn.colour, linestyle=drawn.dashes, marker=drawn.marker, label=names.series(row)
        )
    if is_by_time:
        axes.set_xlim(left=0)
    else:
        last = max(run.plan.epochs for row in rows for run in row.runs)
        axes.set_xticks(range(1, last + 1, -(-last // 10)))  # ten at most
        axes.set_xlim(0.5, last + 0.5)
    return with_legend(figure, axes)


def strokes(rows: Sequence[Row], names: Names) -> list[tuple[Row, Stroke]]:
    ranks = sorted({row.ranks for row in rows if row.algorithm != SERIAL})
    return [(row, stroke(row, ranks, names)) for row in rows]


def empty_figure(up: str, across: str) -> tuple[Figure, Axes]:
    """A figure with its vertical axis named above it, to be read without turning the head."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(up)
    axes.set_xlabel(across)
    return figure, axes


def with_legend(figure: Figure, axes: Axes) -> Figure:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels))
    return figure


def legend_columns(labels: Sequence[str]) -> int:
    """The number of columns that fit, at most four: matplotlib would put the rest outside the figure."""
    points = 34 + 5.6 * max(map(len, labels))
    return max(1, min(4, int(72 * SIZE[0] / points)))


def by_epoch(draw: Callable[..., Figure]) -> Callable[[Sequence[Row], Names, Words], Figure]:
    return lambda rows, names, words: draw(rows, names, words, False)


def by_time(draw: Callable[..., Figure]) -> Callable[[Sequence[Row], Names, Words], Figure]:
    return lambda rows, names, words: draw(rows, names, words, True)


DRAWN = {
    "loss_by_epoch": by_epoch(draw_loss),
    "loss_by_time": by_time(draw_loss),
    "accuracy_by_epoch": by_epoch(draw_accuracy),
    "accuracy_by_time": by_time(draw_accuracy),
}
