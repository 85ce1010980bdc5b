"""The comparison and its explanation. The numbers choose every sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean

from horovod.lab.environment import Environment
from horovod.lab.intervals import estimate
from horovod.lab.report import numbers
from horovod.lab.report.codec_errors import CodecError
from horovod.lab.report.comparison import (
    Pair,
    disturbed_runs,
    pairs,
    same_seeds,
    serial_row,
    usable_cores,
)
from horovod.lab.report.document import Section
from horovod.lab.report.names import Names
from horovod.lab.report.payment import payment
from horovod.lab.report.speed import speed
from horovod.lab.report.words import Words
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL, Run

__all__ = ["sections"]

UNCHANGED = 0.005  # percentage points: a smaller change shows as 0.00


def sections(
    rows: Sequence[Row], environment: Environment, errors: Sequence[CodecError], names: Names, words: Words
) -> list[Section]:
    found = [
        ("speed_title", speed(rows, names, words)),
        ("limits_title", limits(rows, environment, names, words)),
        ("pay_title", payment(rows, names, words)),
        ("learning_title", learning(rows, errors, names, words)),
        ("same_model_title", same_model(rows, names, words)),
    ]
    return [Section(words(title), tuple(sentences)) for title, sentences in found if sentences]


def limits(rows: Sequence[Row], environment: Environment, names: Names, words: Words) -> list[str]:
    """For each place, the parts of a step of its largest uncompressed run."""
    serial, said = serial_row(rows), []
    for place in names.places:
        here = [row for row in rows if row.place == place and row.algorithm != SERIAL]
        parallel = [row for row in here if row.wait_seconds]
        if not parallel:
            continue
        row = max(parallel, key=lambda row: (row.ranks, row.algorithm == "none"))
        parts = where_a_step_goes(row, serial, usable_cores(place, environment), names, words)
        said.append(words.together(*parts))
    return said


def where_a_step_goes(
    row: Row, serial: Row | None, cores: int | None, names: Names, words: Words
) -> list[str]:
    step, wait = row.step_seconds.mean, row.wait_seconds.mean if row.wait_seconds else 0.0
    values = {
        "row": names.row(row),
        "step": numbers.plain(1e3 * step),
        "wait": numbers.plain(1e3 * wait),
        "share": numbers.plain(100 * wait / step, decimals=0),
    }
    said = [words("wait_share", **values)]
    if serial is None:
        return said
    alone = serial.step_seconds.mean
    compute = step - wait
    said.append(
        words(
            "compute_beside_serial",
            compute=numbers.plain(1e3 * compute),
            alone=numbers.plain(1e3 * alone),
            factor=numbers.plain(compute / alone, decimals=2),
        )
    )
    slowed = compute - alone
    if max(wait, slowed) < 0.1 * alone:
        said.append(words("limit_none"))
    elif wait >= slowed:
        said.append(words("limit_waiting"))
    elif disturbed_runs([*row.runs, *serial.runs]):
        said.append(words("limit_slower"))
    elif cores is None:
        said.append(words("limit_unknown"))
    else:
        said.append(words("limit_cores" if row.ranks > cores else "limit_compute"))
    return said + busy_meanwhile(row, serial, words)


def busy_meanwhile(row: Row, serial: Row, words: Words) -> list[str]:
    """Other programs as a cause: they slow computation, and all ranks wait for the slowest."""
    if not disturbed_runs([*row.runs, *serial.runs]):
        return []
    shares = [f"{100 * mean(run.load.during for run in of_row.runs):.0f} %" for of_row in (row, serial)]
    return [words("busy_meanwhile", share=shares[0], serial=shares[1])]


def learning(rows: Sequence[Row], errors: Sequence[CodecError], names: Names, words: Words) -> list[str]:
    """Accuracy with and without compression, and with fewer and larger steps."""
    said = changed_accuracy(rows, names, words)
    said += [
        words(
            "codec_loses",
            codec=names.algorithm(error.compression),
            share=f"{numbers.small(100 * error.nmse)} %",
        )
        for error in errors
    ]
    serial = serial_row(rows)
    parallel = [row for row in rows if row.algorithm != SERIAL]
    if serial and parallel:
        said += fewer_updates(serial, max(parallel, key=lambda row: row.ranks), names, words)
    return said


def changed_accuracy(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    """The largest change by a compression, and whether it is significant."""
    found = pairs(rows)
    if not found:
        return []
    most = max(found, key=lambda pair: abs(change_of(pair)))
    points = 100 * abs(change_of(most))
    if points < UNCHANGED:
        return [words("accuracy_unchanged")]
    said = [
        words("accuracy_change", row=names.row(most.compressed), points=numbers.plain(points, decimals=2))
    ]
    found_change = most.accuracy_change
    if found_change is None or found_change.seeds < 2:
        return [*said, words("seeds_unknown")]
    ends = {"low": f"{100 * found_change.low:+.2f}", "high": f"{100 * found_change.high:+.2f}"}
    key = "beyond_seeds" if found_change.low > 0 or found_change.high < 0 else "within_seeds"
    return [*said, words(key, **ends)]


def change_of(pair: Pair) -> float:
    return pair.compressed.accuracy.mean - pair.plain.accuracy.mean


def fewer_updates(serial: Row, row: Row, names: Names, words: Words) -> list[str]:
    steps, alone = len(row.runs[0].step_seconds), len(serial.runs[0].step_seconds)
    change = 100 * (row.accuracy.mean - serial.accuracy.mean)
    sure = estimate([other.accuracy - one.accuracy for one, other in same_seeds(serial, row)] or [math.nan])
    if steps >= alone:
        return []
    values = {"row": names.row(row), "steps": steps, "alone": alone}
    if abs(change) < UNCHANGED:
        return [words("fewer_updates_equal", **values)]
    key = "fewer_updates_unclear"
    if sure.high < 0 or sure.low > 0:
        key = "fewer_updates_lower" if change < 0 else "fewer_updates_not_lower"
    return [words(key, points=numbers.plain(abs(change), decimals=2), **values)]


def same_model(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    parallel = [(row, run) for row in rows for run in row.runs if run.plan.ranks > 1]
    apart = [f"{names.row(row)} ({run.folder.name})" for row, run in parallel if not run.identical]
    if not parallel:
        return []
    said = words("not_identical", runs=words.listed(apart)) if apart else words("identical")
    return [said, *beside_places([run for _, run in parallel], words)]


def beside_places(runs: Sequence[Run], words: Words) -> list[str]:
    """Whether the same training ended with the same parameters at every place."""
    found: dict[tuple[str, int, int], dict[str, str]] = {}
    for run in runs:
        plan = run.plan
        found.setdefault((plan.algorithm, plan.ranks, plan.seed), {})[plan.place] = run.checksum
    several = [checksums for checksums in found.values() if len(checksums) > 1]
    if not several:
        return []
    is_same = all(len(set(checksums.values())) == 1 for checksums in several)
    return [words("places_same" if is_same else "places_apart")]
