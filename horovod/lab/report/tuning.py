"""The autotuner's work in a run: the time of every step, and the blocks of steps that it measured."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from horovod.drawing.palette import light
from horovod.lab.report.curves import empty_figure, with_legend
from horovod.lab.report.palette import LINE
from horovod.lab.report.words import Words
from horovod.lab.results import Row
from horovod.lab.runs import Run, Trial

__all__ = ["draw_tuning", "tuned_runs"]

KEPT, TRIED = light("blue"), light("orange")


def tuned_runs(rows: Sequence[Row]) -> list[tuple[Row, Run]]:
    """The first run with trials of the autotuner, of each row that has one."""
    tuned = [(row, next((run for run in row.runs if run.trials), None)) for row in rows]
    return [(row, run) for row, run in tuned if run is not None]


def draw_tuning(run: Run, words: Words) -> Figure:
    """The figure. Its vertical axis is logarithmic: a trial may be many times slower."""
    figure, axes = empty_figure(words("step_time_axis"), words("step_number_axis"))
    numbers = range(1, len(run.step_seconds) + 1)
    milliseconds = [1000 * seconds for seconds in run.step_seconds]
    axes.plot(numbers, milliseconds, color=LINE, linewidth=0.5, label=words("each_step"))
    for is_kept, colour, label in ((True, KEPT, "kept_settings"), (False, TRIED, "tried_settings")):
        chosen = [trial for trial in run.trials if trial.is_incumbent == is_kept]
        axes.plot(*_bars(chosen), color=colour, linewidth=3, solid_capstyle="butt", label=words(label))
    axes.axvline(run.trials[-1].last_step + 0.5, color=LINE, linestyle=(0, (4, 1.6)), linewidth=1)
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    return with_legend(figure, axes)


def _bars(trials: Sequence[Trial]) -> tuple[list[float], list[float]]:
    """One line with a gap after each trial: as wide as its steps, as high as their mean."""
    across: list[float] = []
    up: list[float] = []
    for trial in trials:
        across += [trial.first_step - 0.5, trial.last_step + 0.5, float("nan")]
        up += [1000 * trial.seconds] * 2 + [float("nan")]
    return across, up
