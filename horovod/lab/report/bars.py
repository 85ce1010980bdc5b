"""Bars, one for each row: the parts of a step's time, the training time, the accuracy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from horovod.lab.report import numbers
from horovod.lab.report.names import Names
from horovod.lab.report.palette import INK, WAITING, shade
from horovod.lab.report.words import Words
from horovod.lab.results import Figure as Statistic
from horovod.lab.results import Row

__all__ = ["DRAWN"]

WIDTH = 4.9  # inches
BAR_HEIGHT = 0.27


def draw_steps(rows: Sequence[Row], names: Names, words: Words) -> Figure:
    """The median step; its end shows the median wait."""
    figure, axes = empty_figure(rows, names, words("step_axis"))
    for at, row in zip(heights(rows), rows, strict=True):
        step = 1e3 * row.step_seconds.mean
        wait = 1e3 * row.wait_seconds.mean if row.wait_seconds else 0.0
        first = row is rows[0]
        colour = shade(row.algorithm, names)
        axes.barh(at, step - wait, color=colour, height=0.66, label=words("computing") if first else None)
        axes.barh(
            at,
            wait,
            left=step - wait,
            color=WAITING,
            hatch="////",
            edgecolor=INK,
            linewidth=0.4,
            height=0.66,
            label=words("waiting") if first else None,
        )
        write_at_end(axes, at, step, numbers.plain(step))
    axes.set_xlim(0, 1.17 * max(1e3 * row.step_seconds.mean for row in rows))
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=1)
    return figure


def draw_times(rows: Sequence[Row], names: Names, words: Words) -> Figure:
    figure, axes = empty_figure(rows, names, words("training_axis"))
    draw_bars(axes, rows, [row.training_seconds for row in rows], names)
    axes.set_xlim(0, 1.17 * max(upper(row.training_seconds) for row in rows))
    for at, row in zip(heights(rows), rows, strict=True):
        write_at_end(axes, at, upper(row.training_seconds), numbers.plain(row.training_seconds.mean))
    return figure


def draw_accuracies(rows: Sequence[Row], names: Names, words: Words) -> Figure:
    """Points instead of bars: differences are small, and a bar would have to begin at 0."""
    figure, axes = empty_figure(rows, names, words("accuracy_axis"))
    for at, row in zip(heights(rows), rows, strict=True):
        spread = row.accuracy.spread
        axes.errorbar(
            100 * row.accuracy.mean,
            at,
            xerr=None if spread is None else 100 * spread,
            fmt="o",
            color=shade(row.algorithm, names),
            capsize=3,
        )
        if len(row.runs) == 1:
            continue
        axes.plot(
            [100 * run.accuracy for run in row.runs],
            [at + 0.24] * len(row.runs),
            "|",
            color=shade(row.algorithm, names),
            markersize=5,
        )
    low = 100 * min(run.accuracy for row in rows for run in row.runs)
    high = 100 * max(run.accuracy for row in rows for run in row.runs)
    room = max(0.15, 0.15 * (high - low))
    axes.set_xlim(low - room, high + 1.6 * room)
    return figure


def draw_bars(axes: Axes, rows: Sequence[Row], statistics: Sequence[Statistic], names: Names) -> None:
    for at, row, statistic in zip(heights(rows), rows, statistics, strict=True):
        axes.barh(
            at,
            statistic.mean,
            xerr=statistic.spread,
            color=shade(row.algorithm, names),
            ecolor=INK,
            capsize=2.5,
            height=0.66,
        )


def upper(statistic: Statistic) -> float:
    return statistic.mean + (statistic.spread or 0.0)


def write_at_end(axes: Axes, at: int, end: float, text: str) -> None:
    axes.annotate(text, (end, at), xytext=(4, 0), textcoords="offset points", va="center", size=9)


def heights(rows: Sequence[Row]) -> list[int]:
    """Each row's vertical position, from above; each of several places has space for its heading."""
    places = list(dict.fromkeys(row.place for row in rows))
    headings = len(places) > 1
    return [number + headings * (1 + places.index(row.place)) for number, row in enumerate(rows)]


def empty_figure(rows: Sequence[Row], names: Names, across: str) -> tuple[Figure, Axes]:
    """A figure with a named line for each row, the first on top; a heading for each of several places."""
    lines = heights(rows)
    figure = Figure(figsize=(WIDTH, 1.1 + BAR_HEIGHT * max(5, lines[-1] + 1)), layout="constrained")
    axes = figure.add_subplot()
    axes.set_yticks(lines, labels=[names.series(row) for row in rows])
    axes.set_ylim(lines[-1] + 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel(across)
    if lines[0] > 0:
        for line, row in zip(lines, rows, strict=True):
            if line - 1 not in lines:
                at = axes.get_yaxis_transform()
                axes.text(0.012, line - 1, names.place(row.place), transform=at, va="center", size=9)
    return figure, axes


DRAWN: dict[str, Callable[[Sequence[Row], Names, Words], Figure]] = {
    "steps": draw_steps,
    "times": draw_times,
    "accuracies": draw_accuracies,
}
