"""Tables of benchmarks/convergence.py: the final figures of every compression, and the cost to get there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import mean, median, stdev

import report
from convergence_tasks import TASKS
from report import Record

from horovod.lab.intervals import Estimate, estimate

BASELINE = "none"
LINK_BYTES_PER_SECOND = 1e9 / 8
By = dict[str, dict[int, Record]]  # by compression and seed, as convergence.py writes it
Results = dict[str, By]  # by task

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


def paired(runs: Mapping[int, Record], baseline: Mapping[int, Record], judged_by: str) -> list[float]:
    """Return by how much each seed's run exceeds the baseline's run of that seed.

    Two runs of one seed see the same batches and begin with the same parameters. The seed's effect therefore
    cancels in their difference, and a few seeds bound its mean narrowly. In percent of the baseline's for a
    loss, in percentage points for an accuracy. Seeds that only one of the two has are left out.
    """
    pairs = [(runs[seed][judged_by], baseline[seed][judged_by]) for seed in sorted(runs.keys() & baseline)]
    if judged_by == "accuracy":
        return [100 * (ours - theirs) for ours, theirs in pairs]
    return [100 * (ours / theirs - 1) for ours, theirs in pairs]


def first_reached(run: Record, judged_by: str, target: float, spent: str) -> float:
    """Return the "step", "seconds" or "bytes_sent" that a run took to its target, NaN if it never did.

    Interpolates linearly between two points of the curve.
    """
    sign = 1 if judged_by == "accuracy" else -1
    before = None
    for point in run["curve"]:
        missing = sign * (target - point[judged_by])
        if missing <= 0:
            if before is None:
                return float(point[spent])
            share = before[1] / (before[1] - missing)
            return float(before[0] + share * (point[spent] - before[0]))
        before = (point[spent], missing)
    return math.nan


def final_row(task: str, name: str, runs: dict[int, Record], baseline: dict[int, Record]) -> dict[str, str]:
    """Return cells by heading: the final loss and accuracy, and their distance from float32's."""
    judged_by = TASKS[task].judged_by
    losses = [run["loss"] for run in runs.values()]
    accuracies = [100 * run["accuracy"] for run in runs.values()]
    samples = accuracies if judged_by == "accuracy" else losses
    cells = {
        "compression": name,
        "loss": f"{mean(losses):.4f}",
        "accuracy, %": f"{mean(accuracies):.2f}",
        f"st. dev. of {judged_by}": f"{stdev(samples):.4f}" if len(samples) > 1 else "-",
    }
    compared = dict.fromkeys(["float32, same seeds", f"difference, {UNIT[judged_by]}", "within limit"], "")
    if name != BASELINE:
        same_seeds = mean(run[judged_by] for seed, run in baseline.items() if seed in runs)
        found = estimate(paired(runs, baseline, judged_by))
        own = f"{same_seeds:.4f}" if judged_by == "loss" else f"{100 * same_seeds:.2f}"
        difference = f"{found.mean:+.3f} ± {found.half_width:.3f}"
        compared = dict(zip(compared, [own, difference, conclusion(task, name, found)], strict=True))
    return cells | compared | {"seeds": str(len(runs))}


def cost_row(task: str, name: str, runs: dict[int, Record]) -> dict[str, str]:
    """Return cells by heading: steps and bytes to the target, and seconds of a link: medians over seeds."""
    judged_by, target = TASKS[task].judged_by, TASKS[task].target
    steps, sent = (
        median([first_reached(run, judged_by, target, unit) for run in runs.values()])
        for unit in ("step", "bytes_sent")
    )
    per_step = median([run["bytes_sent"] / run["steps"] for run in runs.values()])
    shown = f"loss {target:g}" if judged_by == "loss" else f"{100 * target:g} %"
    reached = [f"{steps:.0f}", f"{sent / 1e6:.2f}", f"{sent / LINK_BYTES_PER_SECOND:.2f}"]
    cells = ["never", "", ""] if math.isnan(steps) else reached
    headings = [f"steps to {shown}", "MB by then", "s at 1 Gbit/s"]
    first = {"compression": name, "KB per step": f"{per_step / 1e3:.1f}"}
    return first | dict(zip(headings, cells, strict=True))


def rows_of(task: str, by_compression: By) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Return the cells of the final figures and of the costs of each compression."""
    baseline = by_compression[BASELINE]
    return [
        (final_row(task, name, runs, baseline), cost_row(task, name, runs))
        for name, runs in by_compression.items()
    ]


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
        parts += [f"#### Task {task}", setup_line(by_compression)]
        for rows in zip(*rows_of(task, by_compression), strict=True):
            parts.append(report.table([*rows[0]], [[*row.values()] for row in rows]))
    return "\n\n".join(parts)


def write_csv(path: Path, task: str, by_compression: By) -> None:
    """Write both tables of a task as one, with a row for each compression."""
    path.unlink(missing_ok=True)
    joined = [final | cost for final, cost in rows_of(task, by_compression)]
    report.write_csv(path, [*joined[0]], [[*row.values()] for row in joined])
