"""The facts of a report, which decide its sentences; en.jinja and zh.jinja have the wording."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from horovod.common.numpy_codec import codec_of_text, nmse
from horovod.lab.environment import Environment
from horovod.lab.intervals import CONFIDENCE, estimate
from horovod.lab.load import DISTURBED
from horovod.lab.report import numbers
from horovod.lab.report.comparison import (
    DISTURBED_CONFIDENCE,
    Conclusion,
    Pair,
    disturbed_runs,
    is_clearly_faster,
    pairs,
    same_seeds,
    serial_row,
    steps_per_epoch,
    undivided_rows,
    usable_cores,
)
from horovod.lab.report.words import Names
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL, Run

UNCHANGED = 0.005  # percentage points: a smaller change shows as 0.00
ABOVE_IDEAL, NEAR_IDEAL, HALF_IDEAL = 1.05, 0.9, 0.5  # of efficiency
ELEMENTS = 2**17  # that each codec is applied to

T = TypeVar("T")


@dataclass(frozen=True)
class CodecError:
    """One encoding of numbers of N(0, 1)."""

    compression: str
    nmse: float  # |restored - x|^2 / |x|^2
    relative: NDArray[np.float64]  # |restored - x| / |x| of each element


def codec_errors(compressions: Iterable[str]) -> list[CodecError]:
    """The errors of compressions that are codecs. Skips none, casts, top-k and PowerSGD."""
    x = np.random.default_rng(0).standard_normal(ELEMENTS, dtype=np.float32)
    found = []
    for compression in dict.fromkeys(compressions):
        codec = codec_of_text(compression)
        if codec is None:
            continue
        restored = codec.decode(codec.encode(x), x.size).astype(np.float64)
        found.append(CodecError(compression, nmse(restored, x), np.abs(restored - x) / np.abs(x)))
    return found


def facts(runs: Sequence[Run], rows: Sequence[Row], environment: Environment, names: Names) -> dict[str, Any]:
    """All values that a template uses, except tables and pictures."""
    serial, errors = serial_row(rows), codec_errors(names.algorithms)
    return {
        "runs": runs,
        "places": names.places,
        "shortened": [f"{short} = {algorithm}" for algorithm, short in names.shortened.items()],
        "codec_errors": errors,
        "serial": serial,
        "all_undivided": undivided_rows(rows),
        **options(runs),
        **oddities(runs, rows),
        **fastest(rows),
        **accuracies(rows),
        **payment(rows),
        "crowded": crowded(rows, environment),
        **speed(rows),
        "limits": list(limits(rows, environment, names)),
        "most_changed": most_changed(rows),
        "fewer_updates": fewer_updates(rows),
        **same_model(rows, names),
        # Functions
        "name": names.row,
        "series": names.series,
        "place_name": names.place,
        "algorithm": names.algorithm,
        "listed": names.listed,
        "sorted": sorted,
        "largest": largest,
        "nearness": nearness,
        "steps": lambda row: round(steps_per_epoch(row)),
        "examples": lambda row: examples(row, serial),
        "per_example": lambda row: row.speed_up.mean * examples(row, serial),
        **{name: getattr(numbers, name) for name in numbers.FORMATS},
        "CONFIDENCE": CONFIDENCE,
        "DISTURBED": DISTURBED,
        "DISTURBED_CONFIDENCE": DISTURBED_CONFIDENCE,
        "UNCHANGED": UNCHANGED,
    }


def unique(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))


def options(runs: Sequence[Run]) -> dict[str, Any]:
    """The different values of each option of the runs, in their order."""
    plans = [run.plan for run in runs]
    arguments = unique(shlex.join(plan.arguments) for plan in plans)
    return {
        "scripts": unique(plan.script for plan in plans),
        "parallel_scripts": unique(plan.script for plan in plans if plan.ranks > 1),
        "all_arguments": [each or numbers.MISSING for each in arguments],
        "arguments": list(filter(None, arguments)),
        "datasets": unique(run.dataset for run in runs),
        "threads": unique(plan.threads for plan in plans),
        "epochs": unique(plan.epochs for plan in plans),
        "seeds": unique(plan.seed for plan in plans),
        "ranks": unique(plan.ranks for plan in plans),
        "compressions": unique(plan.compression for plan in plans if plan.ranks > 1),
    }


def oddities(runs: Sequence[Run], rows: Sequence[Row]) -> dict[str, Any]:
    """Facts that make rows hard to compare, or a result doubtful."""
    return {
        "are_seeds_unlike": len({frozenset(run.plan.seed for run in row.runs) for row in rows}) > 1,
        "disturbed": disturbed_runs(runs),
        "diverged": [run.folder.name for run in runs if not all(map(math.isfinite, losses(run)))],
        "apart": [run.folder.name for run in runs if not run.identical],
    }


def losses(run: Run) -> Iterable[float]:
    """All losses of a run: of its steps, and of its epochs."""
    yield from run.step_losses
    for epoch in run.epochs:
        yield from (epoch.train_loss, epoch.test_loss)


def fastest(rows: Sequence[Row]) -> dict[str, Any]:
    first, second, *_ = *sorted(rows, key=lambda row: row.training_seconds.mean), None
    is_clear = second is None or is_clearly_faster(first, second, len(rows) - 1)
    return {"fastest": first, "second": second, "is_fastest_by_chance": not is_clear}


def accuracies(rows: Sequence[Row]) -> dict[str, Any]:
    """The least and the most accurate row, and whether more than chance is between them."""
    ordered = sorted(rows, key=lambda row: row.accuracy.mean)
    low, high = ordered[0].accuracy.mean, ordered[-1].accuracy.mean
    spreads = [row.accuracy.spread for row in rows]
    if len(rows) == 1:
        found = "single"
    elif f"{100 * low:.2f}" == f"{100 * high:.2f}":
        found = "equal"
    elif None in spreads:
        found = "unknown"
    else:
        found = "same" if high - low <= 2 * max(filter(None, spreads), default=0.0) else "differ"
    return {"accuracies": found, "worst": ordered[0], "best": ordered[-1]}


def payment(rows: Sequence[Row]) -> dict[str, Any]:
    """Pairs of rows with and without compression, also by conclusion, the largest effect first."""
    found = pairs(rows)

    def having(conclusion: Conclusion, sign: int = 1) -> list[Pair]:
        chosen = [pair for pair in found if pair.conclusion is conclusion]
        return sorted(chosen, key=lambda pair: sign * pair.saved_time, reverse=True)

    most = max(found, key=lambda pair: pair.ratio, default=None)
    first: dict[tuple[str, int], Row] = {}
    elsewhere = [(first.setdefault((row.algorithm, row.ranks), row), row) for row in rows]
    return {
        "pairs": found,
        "most_saving": most if most and most.saves_bytes else None,
        "paid": having(Conclusion.PAID),
        "unexplained": having(Conclusion.UNEXPLAINED),
        "costly": having(Conclusion.COST, -1),
        "compared": [pair for pair in found if pair.conclusion is not Conclusion.UNKNOWN],
        "left_out": any(pair.left_out for pair in found),
        "same_elsewhere": [(here, there) for here, there in elsewhere if here.place != there.place],
    }


def crowded(rows: Sequence[Row], environment: Environment) -> dict[str, int] | None:
    """The most ranks that share fewer cores, and these cores."""
    found = [(row.ranks, usable_cores(row.place, environment)) for row in rows]
    short = [(ranks, cores) for ranks, cores in found if cores is not None and ranks > cores]
    ranks, cores = max(short, key=lambda pair: pair[0], default=(0, 0))
    return {"ranks": ranks, "cores": cores} if ranks else None


def speed(rows: Sequence[Row]) -> dict[str, Any]:
    """Only rows whose ranks divided the steps are compared with the ideal: the others did other work."""
    parallel = [row for row in rows if row.algorithm != SERIAL]
    judged = [row for row in parallel if row.efficiency] if serial_row(rows) else []
    undivided = [row for row in undivided_rows(rows) if row in judged]
    divided = [row for row in judged if row not in undivided]
    ends = [choose(divided, key=efficiency) for choose in (max, min) if divided]
    return {
        "parallel": parallel,
        "judged": judged,
        "undivided": undivided,
        "divided": divided,
        "most_and_least_efficient": unique(ends),
    }


def efficiency(row: Row) -> float:
    return row.efficiency.mean if row.efficiency else 0.0


def largest(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: row.ranks)


def examples(row: Row, serial: Row | None) -> float:
    """How many times as many examples as the serial run an epoch of this row uses; 1 without that run."""
    return row.ranks * steps_per_epoch(row) / steps_per_epoch(serial) if serial else 1.0


def nearness(row: Row) -> str:
    """How near a row's speed-up is to the ideal."""
    if row.speed_up and row.speed_up.mean < 1:
        return "slower"
    if efficiency(row) > ABOVE_IDEAL:
        return "above"
    if efficiency(row) >= NEAR_IDEAL:
        return "near"
    return "half" if efficiency(row) >= HALF_IDEAL else "far"


def limits(rows: Sequence[Row], environment: Environment, names: Names) -> Iterable[dict[str, Any]]:
    """For each place, the parts of a step of its largest uncompressed run, in milliseconds."""
    serial = serial_row(rows)
    for place in names.places:
        parallel = [row for row in rows if row.place == place and row.wait_seconds]
        if not parallel:
            continue
        row = max(parallel, key=lambda row: (row.ranks, row.algorithm == "none"))
        step, wait = 1e3 * row.step_seconds.mean, 1e3 * row.wait_seconds.mean if row.wait_seconds else 0.0
        found: dict[str, Any] = {"row": row, "step": step, "wait": wait, "compute": step - wait}
        found |= {"alone": None, "cause": None, "is_disturbed": False}
        if serial is not None:
            alone = 1e3 * serial.step_seconds.mean
            is_disturbed = bool(disturbed_runs([*row.runs, *serial.runs]))
            cause = "slower" if is_disturbed else cores_suffice(row, usable_cores(place, environment))
            if max(wait, step - wait - alone) < 0.1 * alone:
                cause = "none"
            elif wait >= step - wait - alone:
                cause = "waiting"
            found |= {
                "alone": alone,
                "cause": cause,
                "is_disturbed": is_disturbed,  # other programs slow ranks, and all wait for the slowest
                "busy": mean(run.load.during for run in row.runs),
                "busy_alone": mean(run.load.during for run in serial.runs),
            }
        yield found


def cores_suffice(row: Row, cores: int | None) -> str:
    if cores is None:
        return "unknown"
    return "cores" if row.ranks > cores else "compute"


def most_changed(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The largest change of accuracy by a compression, and whether it is significant."""
    most = max(pairs(rows), key=lambda pair: abs(accuracy_gap(pair.plain, pair.compressed)), default=None)
    if most is None:
        return None
    found: dict[str, Any] = {
        "row": most.compressed,
        "points": abs(accuracy_gap(most.plain, most.compressed)),
        "by_chance": "unknown",
    }
    change = most.accuracy_change
    if change is not None and change.seeds > 1:
        is_significant = change.low > 0 or change.high < 0
        found["by_chance"] = "hardly" if is_significant else "perhaps"
        found |= {"low": f"{100 * change.low:+.2f}", "high": f"{100 * change.high:+.2f}"}
    return found


def accuracy_gap(one: Row, other: Row) -> float:
    """By how many percentage points the other is more accurate."""
    return 100 * (other.accuracy.mean - one.accuracy.mean)


def fewer_updates(rows: Sequence[Row]) -> dict[str, Any] | None:
    """The largest run's number of steps and accuracy, beside the serial run's."""
    serial, parallel = serial_row(rows), [row for row in rows if row.algorithm != SERIAL]
    if serial is None or not parallel:
        return None
    row = largest(parallel)
    steps, alone = len(row.runs[0].step_seconds), len(serial.runs[0].step_seconds)
    if steps >= alone:
        return None
    gap = accuracy_gap(serial, row)
    sure = estimate([other.accuracy - one.accuracy for one, other in same_seeds(serial, row)] or [math.nan])
    change = "unclear"
    if abs(gap) < UNCHANGED:
        change = "equal"
    elif sure.high < 0 or sure.low > 0:
        change = "lower" if gap < 0 else "higher"
    return {"row": row, "steps": steps, "alone": alone, "points": abs(gap), "change": change}


def same_model(rows: Sequence[Row], names: Names) -> dict[str, Any]:
    """Whether all ranks, and the same training at every place, ended with the same parameters."""
    parallel = [(row, run) for row in rows for run in row.runs if run.plan.ranks > 1]
    at_places: dict[tuple[str, int, int], list[str]] = {}
    for _, run in parallel:
        key = (run.plan.algorithm, run.plan.ranks, run.plan.seed)
        at_places.setdefault(key, []).append(run.checksum)
    several = [checksums for checksums in at_places.values() if len(checksums) > 1]
    are_equal = all(len(set(checksums)) == 1 for checksums in several)
    return {
        "parallel_runs": parallel,
        "drifted": [f"{names.row(row)} ({run.folder.name})" for row, run in parallel if not run.identical],
        "checksums": ("equal" if are_equal else "unequal") if several else None,
    }
