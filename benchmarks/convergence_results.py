"""Tables of benchmarks/convergence.py: the final figures of every compression, and the cost to get there."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

import report
from convergence_statistics import first_reached, paired
from convergence_tasks import TASKS

from horovod.lab.intervals import Estimate, estimate

BASELINE = "none"
LINK_BYTES_PER_SECOND = 1e9 / 8
Record = dict[str, Any]  # as convergence_worker.py writes it
By = dict[str, dict[int, Record]]  # by compression and seed
Results = dict[str, By]  # by task
Table = tuple[list[str], list[list[str]]]  # headings and rows

# The largest mean difference allowed, by a task's figure of merit: percent of a loss, points of an accuracy.
LIMITS = {
    "loss": {"bit8": 0.4, "int8": 0.4, "int4:error_feedback=1": 1.0},
    "accuracy": {"bit8": 0.2, "int8": 0.2, "int4:error_feedback=1": 0.2},
}
UNIT = {"loss": "%", "accuracy": "points"}


def limit_of(task: str, compression: str) -> float | None:
    return LIMITS[TASKS[task].judged_by].get(compression)


def label(compression: str) -> str:
    """Return a short name: "int4:rotation=hadamard,error_feedback=1" becomes "int4 hadamard feedback"."""
    name, _, options = compression.partition(":")
    values = options.replace("error_feedback=1", "=feedback").split(",")
    return " ".join([name, *(value.partition("=")[2] for value in values if value)])


def conclusion(task: str, compression: str, difference: Estimate) -> str:
    """Return whether the mean is worse by no more than the limit; a better mean always passes."""
    limit = limit_of(task, compression)
    if limit is None:
        return ""
    worse = difference.mean if TASKS[task].judged_by == "loss" else -difference.mean
    return f"{'yes' if worse <= limit else 'NO'} ({limit:g})"


def final_row(task: str, compression: str, runs: dict[int, Record], baseline: dict[int, Record]) -> list[str]:
    judged_by = TASKS[task].judged_by
    losses = [run["loss"] for run in runs.values()]
    accuracies = [100 * run["accuracy"] for run in runs.values()]
    samples = accuracies if judged_by == "accuracy" else losses
    cells = [compression, f"{mean(losses):.4f}", f"{mean(accuracies):.2f}"]
    cells.append(f"{stdev(samples):.4f}" if len(samples) > 1 else "-")
    if compression == BASELINE:
        return [*cells, "", "", "", str(len(runs))]
    same_seeds = mean(run[judged_by] for seed, run in baseline.items() if seed in runs)
    cells.append(f"{same_seeds:.4f}" if judged_by == "loss" else f"{100 * same_seeds:.2f}")
    difference = estimate(paired(runs, baseline, judged_by))
    cells.append(f"{difference.mean:+.3f} ± {difference.half_width:.3f}")
    return [*cells, conclusion(task, compression, difference), str(len(runs))]


def final_table(task: str, by_compression: By) -> Table:
    """Return headings and rows: the final loss and accuracy, and their distance from float32's."""
    judged_by = TASKS[task].judged_by
    headings = ["compression", "loss", "accuracy, %", f"st. dev. of {judged_by}", "float32, same seeds"]
    headings += [f"difference, {UNIT[judged_by]}", "within limit", "seeds"]
    baseline = by_compression[BASELINE]
    return headings, [final_row(task, name, runs, baseline) for name, runs in by_compression.items()]


def cost_table(task: str, by_compression: By) -> Table:
    """Return headings and rows: steps and bytes to the target, and seconds of a link: medians over seeds."""
    judged_by, target = TASKS[task].judged_by, TASKS[task].target
    rows = []
    for name, runs in by_compression.items():
        steps, sent = (
            median([first_reached(run, judged_by, target, unit) for run in runs.values()])
            for unit in ("step", "bytes_sent")
        )
        per_step = median([run["bytes_sent"] / run["steps"] for run in runs.values()])
        reached = [f"{steps:.0f}", f"{sent / 1e6:.2f}", f"{sent / LINK_BYTES_PER_SECOND:.2f}"]
        rows.append([name, f"{per_step / 1e3:.1f}", *(["never", "", ""] if math.isnan(steps) else reached)])
    shown = f"loss {target:g}" if judged_by == "loss" else f"{100 * target:g} %"
    return ["compression", "KB per step", f"steps to {shown}", "MB by then", "s at 1 Gbit/s"], rows


def setup_line(by_compression: By) -> str:
    """Return a line about the settings that all runs of a task share, and whether their ranks agreed."""
    records = [run for runs in by_compression.values() for run in runs.values()]
    first = records[0]
    differing = sum(not run["identical"] for run in records)
    agreed = "all ended with bit-identical parameters on all ranks"
    return (
        f"{len(records)} runs of {first['steps']} steps on {first['ranks']} ranks, batch {first['batch']} "
        f"per rank, Adam at {first['learning_rate']:g}, {first['data']}; "
        f"{f'{differing} ended with DIFFERENT parameters' if differing else agreed}."
    )


def section(results: Results) -> str:
    parts = []
    for task, by_compression in results.items():
        found = [final_table(task, by_compression), cost_table(task, by_compression)]
        parts += [f"#### Task {task}", setup_line(by_compression), *(report.table(*each) for each in found)]
    return "\n\n".join(parts)


def write_csv(path: Path, task: str, by_compression: By) -> None:
    """Return both tables of a task as one, with a row for each compression."""
    (headings, rows), (more, costs) = final_table(task, by_compression), cost_table(task, by_compression)
    path.unlink(missing_ok=True)
    joined = [row + cost[1:] for row, cost in zip(rows, costs, strict=True)]
    report.write_csv(path, headings + more[1:], joined)
