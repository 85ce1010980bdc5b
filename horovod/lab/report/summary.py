"""The report's first paragraph. Which sentences it has, and what they say, follows from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.lab.environment import Environment
from horovod.lab.report import numbers
from horovod.lab.report.comparison import (
    CLEAR,
    Pair,
    crowded_rows,
    pairs,
    serial_row,
    undivided_rows,
    usable_cores,
)
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Figure, Row

__all__ = ["sentences"]


def sentences(rows: Sequence[Row], environment: Environment, names: Names, words: Words) -> list[str]:
    return [
        *scope(rows, words),
        *fastest(rows, names, words),
        *([words("times_of_unequal_work")] if undivided_rows(rows) else []),
        *most_accurate(rows, names, words),
        *compression(rows, names, words),
        *crowded(rows, environment, words),
    ]


def scope(rows: Sequence[Row], words: Words) -> list[str]:
    runs = [run for row in rows for run in row.runs]
    return [
        words(
            "scope",
            runs=words.count("runs", len(runs)),
            script=words.listed(sorted({run.plan.script for run in runs})),
            dataset=words.listed(sorted({run.dataset for run in runs})),
            epochs=words.count("epochs", max(run.plan.epochs for run in runs)),
            seeds=words.count("seeds", len({run.plan.seed for run in runs})),
        )
    ]


def fastest(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    ordered = sorted(rows, key=lambda row: row.training_seconds.mean)
    best, serial = ordered[0], serial_row(rows)
    time = numbers.seconds(best.training_seconds, words("s"))
    if len(rows) == 1:
        return [words("only_row", row=names.row(best), time=time)]
    if best is serial:
        other = ordered[1]
        return [
            words(
                "fastest_is_serial",
                time=time,
                row=names.row(other),
                other=numbers.seconds(other.training_seconds, words("s")),
            )
        ]
    if best.speed_up is None:
        return [words("fastest_without_serial", row=names.row(best), time=time)]
    return [words("fastest", row=names.row(best), time=time, speed_up=numbers.factor(best.speed_up))]


def most_accurate(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    ordered = sorted(rows, key=lambda row: row.accuracy.mean)
    low, high = ordered[0], ordered[-1]
    found = {"high": numbers.accuracy(high.accuracy, "%"), "best": names.row(high)}
    if len(rows) == 1:
        return [words("accuracy_of_one", **found)]
    if numbers.accuracy(Figure(low.accuracy.mean, None)) == numbers.accuracy(
        Figure(high.accuracy.mean, None)
    ):
        return [words("accuracy_equal", high=numbers.accuracy(Figure(high.accuracy.mean, None), "%"))]
    found |= {"low": numbers.accuracy(low.accuracy, "%"), "worst": names.row(low)}
    spreads = [row.accuracy.spread for row in rows]
    known = [spread for spread in spreads if spread is not None]
    if len(known) < len(spreads):
        return [words("accuracy_one_seed", **found)]
    gap = high.accuracy.mean - low.accuracy.mean
    return [words("accuracy_same" if gap <= 2 * max(known) else "accuracy_differs", **found)]


def compression(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    found = pairs(rows)
    if not found:
        return []
    said = []
    most = max(found, key=lambda pair: pair.ratio)
    if most.saves_bytes:
        ratio = numbers.plain(most.ratio, decimals=2)
        said.append(words("bytes_saved", row=names.row(most.compressed), ratio=ratio))
    best = max([pair for pair in found if pair.is_faster] or found, key=lambda pair: pair.saved_time)
    key = payment_verdict(found)
    values: dict[str, object] = {
        "row": names.row(best.compressed),
        "share": numbers.change(best.saved_time),
        "faster": sum(pair.is_faster for pair in found),
        "slower": sum(pair.is_slower for pair in found),
        "cases": len(found),
        "least": f"{100 * CLEAR:.0f} %",
    }
    if all(pair.has_spread for pair in found):
        return [*said, words(key, **values)]
    return [*said, words(f"{key}_one_seed", **values), words("times_one_seed")]


def payment_verdict(found: Sequence[Pair]) -> str:
    """The key of what is said of time; where a pair is of one seed, it has a form that claims less."""
    if any(pair.is_faster for pair in found):
        return "compression_paid_and_cost" if any(pair.is_slower for pair in found) else "compression_paid"
    if max(found, key=lambda pair: pair.saved_time).is_slower:
        return "compression_cost"
    is_smaller = any(pair.saves_bytes for pair in found)
    return "compression_did_not_pay" if is_smaller else "compression_saved_nothing"


def crowded(rows: Sequence[Row], environment: Environment, words: Words) -> list[str]:
    found = crowded_rows(rows, environment)
    if not found:
        return []
    most = max(found, key=lambda row: row.ranks)
    return [
        words(
            "crowded",
            ranks=most.ranks,
            cores=words.count("cores", usable_cores(most.place, environment) or 0),
        )
    ]
