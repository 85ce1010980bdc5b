"""The plots of a report: curves by epoch and time for each place, bars, the autotuner's trials, codecs.

Colours, dashes and markers are distinguishable by colour-blind readers and on grey paper.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from statistics import mean
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from horovod.drawing.palette import SERIES, light
from horovod.lab.report import numbers, svg
from horovod.lab.report.document import Picture
from horovod.lab.report.facts import CodecError
from horovod.lab.report.words import Names
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL, Run, Trial

INK, LINE, FAINT = light("ink"), light("line"), light("faint")  # of text, of axes, of grids
SERIAL_COLOUR, WAITING = light("grey"), light("yellow")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[object, ...] = ("-", (0, (4, 1.6)), (0, (1, 1.4)), (0, (6, 1.5, 1, 1.5)))


@dataclass(frozen=True)
class Stroke:
    """The style of a row: colour and marker show its algorithm, dashes its number of ranks."""

    colour: str
    marker: str
    dashes: object


def shade(algorithm: str, names: Names) -> str:
    if algorithm == SERIAL:
        return SERIAL_COLOUR
    return light(SERIES[number_of(algorithm, names) % len(SERIES)])


def stroke(row: Row, ranks: list[int], names: Names) -> Stroke:
    """The style of a row. `ranks`: all numbers of ranks of the report, without the serial one."""
    if row.algorithm == SERIAL:
        return Stroke(SERIAL_COLOUR, "x", "-")
    marker = MARKERS[number_of(row.algorithm, names) % len(MARKERS)]
    return Stroke(shade(row.algorithm, names), marker, DASHES[ranks.index(row.ranks) % len(DASHES)])


def number_of(algorithm: str, names: Names) -> int:
    return [name for name in names.algorithms if name != SERIAL].index(algorithm)


STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "horovod.lab",  # the same data gives the same bytes
    "text.parse_math": False,  # a dollar sign in a script's name does not begin a formula
    "font.family": "DejaVu Sans",  # comes with matplotlib, so text measures the same on every machine
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}

# Curves

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


def draw_loss(rows: Sequence[Row], names: Names, is_by_time: bool) -> Figure:
    figure, axes = empty_figure(names, "loss", "training_time" if is_by_time else "epoch")
    for row, drawn in strokes(rows, names):
        curve = mean_curve([loss_curve(run, is_by_time) for run in row.runs])
        axes.plot(*curve, color=drawn.colour, linestyle=drawn.dashes, label=names.series(row))
        tested = mean_curve([test_losses(run, is_by_time) for run in row.runs])
        axes.plot(*tested, color=drawn.colour, linestyle="none", marker=drawn.marker)
    make_logarithmic(axes)
    return with_legend(figure, axes)


def test_losses(run: Run, is_by_time: bool) -> Curve:
    return accuracy_curve(run, is_by_time)[0], [epoch.test_loss for epoch in run.epochs]


def draw_accuracy(rows: Sequence[Row], names: Names, is_by_time: bool) -> Figure:
    figure, axes = empty_figure(names, "accuracy", "training_time" if is_by_time else "epoch")
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


def empty_figure(names: Names, up: str, across: str) -> tuple[Figure, Axes]:
    """A figure with its vertical axis named above it, to be read without turning the head."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(names.label(up))
    axes.set_xlabel(names.label(across))
    return figure, axes


def make_logarithmic(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")


def with_legend(figure: Figure, axes: Axes) -> Figure:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=legend_columns(labels))
    return figure


def legend_columns(labels: Sequence[str]) -> int:
    """The number of columns that fit, at most four: matplotlib would put the rest outside the figure."""
    points = 34 + 5.6 * max(map(len, labels))
    return max(1, min(4, int(72 * SIZE[0] / points)))


# The autotuner

KEPT, TRIED = light("blue"), light("orange")


def tuned_runs(rows: Sequence[Row]) -> list[tuple[Row, Run]]:
    """The first run with trials of the autotuner, of each row that has one."""
    tuned = [(row, next((run for run in row.runs if run.trials), None)) for row in rows]
    return [(row, run) for row, run in tuned if run is not None]


def draw_tuning(run: Run, names: Names) -> Figure:
    """The figure. Its vertical axis is logarithmic: a trial may be many times slower."""
    figure, axes = empty_figure(names, "step_time", "step")
    numbers = range(1, len(run.step_seconds) + 1)
    milliseconds = [1000 * seconds for seconds in run.step_seconds]
    axes.plot(numbers, milliseconds, color=LINE, linewidth=0.5, label=names.label("each_step"))
    for is_kept, colour, label in ((True, KEPT, "kept_settings"), (False, TRIED, "tried_settings")):
        chosen = [trial for trial in run.trials if trial.is_incumbent == is_kept]
        axes.plot(*_bars(chosen), color=colour, linewidth=3, solid_capstyle="butt", label=names.label(label))
    axes.axvline(run.trials[-1].last_step + 0.5, color=LINE, linestyle=(0, (4, 1.6)), linewidth=1)
    make_logarithmic(axes)
    return with_legend(figure, axes)


def _bars(trials: Sequence[Trial]) -> tuple[list[float], list[float]]:
    """One line with a gap after each trial: as wide as its steps, as high as their mean."""
    across: list[float] = []
    up: list[float] = []
    for trial in trials:
        across += [trial.first_step - 0.5, trial.last_step + 0.5, float("nan")]
        up += [1000 * trial.seconds] * 2 + [float("nan")]
    return across, up


# Bars

BAR_HEIGHT = 0.27  # inches


def draw_steps(rows: Sequence[Row], names: Names) -> Figure:
    """The median step; its end shows the median wait."""
    figure, axes = figure_of_rows(rows, names, "median_step")
    for at, row in zip(heights(rows), rows, strict=True):
        step = 1e3 * row.step_seconds.mean
        wait = 1e3 * row.wait_seconds.mean if row.wait_seconds else 0.0
        computing, waiting = map(names.label, ("computing", "waiting")) if row is rows[0] else (None, None)
        axes.barh(at, step - wait, color=shade(row.algorithm, names), height=0.66, label=computing)
        hatch: dict[str, Any] = {"hatch": "////", "edgecolor": INK, "linewidth": 0.4}
        axes.barh(at, wait, left=step - wait, color=WAITING, height=0.66, label=waiting, **hatch)
        write_at_end(axes, at, step, numbers.plain(step))
    axes.set_xlim(0, 1.17 * max(1e3 * row.step_seconds.mean for row in rows))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=1)
    return figure


def draw_times(rows: Sequence[Row], names: Names) -> Figure:
    figure, axes = figure_of_rows(rows, names, "training_time")
    ends = [row.training_seconds.mean + (row.training_seconds.spread or 0.0) for row in rows]
    for at, row, end in zip(heights(rows), rows, ends, strict=True):
        time, colour = row.training_seconds, shade(row.algorithm, names)
        axes.barh(at, time.mean, xerr=time.spread, color=colour, ecolor=INK, capsize=2.5, height=0.66)
        write_at_end(axes, at, end, numbers.plain(time.mean))
    axes.set_xlim(0, 1.17 * max(ends))
    return figure


def draw_accuracies(rows: Sequence[Row], names: Names) -> Figure:
    """Points instead of bars: differences are small, and a bar would have to begin at 0."""
    figure, axes = figure_of_rows(rows, names, "accuracy")
    for at, row in zip(heights(rows), rows, strict=True):
        found, colour = row.accuracy.times(100), shade(row.algorithm, names)
        axes.errorbar(found.mean, at, xerr=found.spread, fmt="o", color=colour, capsize=3)
        if len(row.runs) > 1:
            each = [100 * run.accuracy for run in row.runs]
            axes.plot(each, [at + 0.24] * len(each), "|", color=colour, markersize=5)
    every = [100 * run.accuracy for row in rows for run in row.runs]
    room = max(0.15, 0.15 * (max(every) - min(every)))
    axes.set_xlim(min(every) - room, max(every) + 1.6 * room)
    return figure


def write_at_end(axes: Axes, at: int, end: float, text: str) -> None:
    axes.annotate(text, (end, at), xytext=(4, 0), textcoords="offset points", va="center", size=9)


def heights(rows: Sequence[Row]) -> list[int]:
    """Each row's vertical position, from above; each of several places has space for its heading."""
    places = list(dict.fromkeys(row.place for row in rows))
    headings = len(places) > 1
    return [number + headings * (1 + places.index(row.place)) for number, row in enumerate(rows)]


def figure_of_rows(rows: Sequence[Row], names: Names, across: str) -> tuple[Figure, Axes]:
    """A figure with a named line for each row, the first on top; a heading for each of several places."""
    lines = heights(rows)
    figure = Figure(figsize=(SIZE[0], 1.1 + BAR_HEIGHT * max(5, lines[-1] + 1)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_yticks(lines, labels=[names.series(row) for row in rows])
    axes.set_ylim(lines[-1] + 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(names.label(across))
    if lines[0] > 0:
        for line, row in zip(lines, rows, strict=True):
            if line - 1 not in lines:
                at = axes.get_yaxis_transform()
                axes.text(0.012, line - 1, names.place(row.place), transform=at, va="center", size=9)
    return figure, axes


# Codecs

SMALLEST, LARGEST = -7, 1  # powers of ten; the outermost bins include errors outside
BINS = 64


def draw_errors(errors: Sequence[CodecError], names: Names) -> Figure:
    figure, axes = empty_figure(names, "share", "relative_error")
    edges = np.logspace(SMALLEST, LARGEST, BINS + 1)
    for number, error in enumerate(errors):
        counts, _ = np.histogram(np.clip(error.relative, edges[0], edges[-1]), edges)
        axes.stairs(
            100 * counts / error.relative.size,
            edges,
            color=shade(error.compression, names),
            linestyle=DASHES[number % len(DASHES)],
            linewidth=1.6,
            label=f"{names.algorithm(error.compression)}: NMSE {numbers.small(error.nmse)}",
        )
    axes.set_xscale("log")
    ticks = range(SMALLEST, LARGEST, 2)
    labels = [f"10{numbers.superscript(power)}" for power in ticks]
    axes.set_xticks([10.0**power for power in ticks], labels=labels)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    return with_legend(figure, axes)


# All

CURVES = {
    "loss_by_epoch": partial(draw_loss, is_by_time=False),
    "loss_by_time": partial(draw_loss, is_by_time=True),
    "accuracy_by_epoch": partial(draw_accuracy, is_by_time=False),
    "accuracy_by_time": partial(draw_accuracy, is_by_time=True),
}
BARS = {"steps": draw_steps, "times": draw_times, "accuracies": draw_accuracies}


def pictures(rows: Sequence[Row], errors: Sequence[CodecError], names: Names) -> dict[str, Any]:
    """Return `plot`, which draws a plot by its name, and the plots of tuning, for a template."""

    def plot(name: str, place: str = "") -> Picture:
        if name == "codecs":
            return picture(name, partial(draw_errors, errors, names))
        if name in BARS:
            return picture(name, partial(BARS[name], rows, names))
        suffix = f"_{names.places.index(place) + 1}" if len(names.places) > 1 else ""
        here = [row for row in rows if row.place == place or row.algorithm == SERIAL]
        return picture(name + suffix, partial(CURVES[name], here, names))

    tuning = [
        (row, run, picture(f"tuning_{number}", partial(draw_tuning, run, names)))
        for number, (row, run) in enumerate(tuned_runs(rows), 1)
    ]
    return {"plot": plot, "tuning": tuning}


def picture(name: str, draw: Callable[[], Figure]) -> Picture:
    def drawn(title: str, caption: str) -> str:
        with rc_context(STYLE), warnings.catch_warnings():
            # DejaVu Sans has no Chinese glyphs; the reader's browser draws the text with fonts that do.
            warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
            return svg.standalone(draw(), name, title, caption)

    return Picture(name, drawn)
