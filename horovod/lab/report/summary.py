"""The report's first paragraph. The numbers decide its sentences."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.lab.environment import Environment
from horovod.lab.report import numbers
from horovod.lab.report.comparison import (
    Conclusion,
    Pair,
    crowded_rows,
    is_clearly_faster,
    pairs,
    serial_row,
    undivided_rows,
    usable_cores,
)
from horovod.lab.report.names import Names
from horovod.lab.report.payment import interval, why_unknown
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
    other = ordered[1]
    if best is serial:
        values = {"time": time, "row": names.row(other)}
        said = words("fastest_is_serial", **values, other=numbers.seconds(other.training_seconds, words("s")))
    elif best.speed_up is None:
        said = words("fastest_without_serial", row=names.row(best), time=time)
    else:
        said = words("fastest", row=names.row(best), time=time, speed_up=numbers.factor(best.speed_up))
    if is_clearly_faster(best, other, len(rows) - 1):
        return [said]
    return [said, words("fastest_by_chance", row=names.row(other))]


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
    return [*said, *whether_it_paid(found, names, words)]


def whether_it_paid(found: Sequence[Pair], names: Names, words: Words) -> list[str]:
    """The best pair for each conclusion, and the pairs to the contrary."""
    by_conclusion = {each: [pair for pair in found if pair.conclusion is each] for each in Conclusion}
    if len(by_conclusion[Conclusion.UNKNOWN]) == len(found):
        return [words(f"compression_{why_unknown(found)}")]
    said = []
    for conclusion in (Conclusion.PAID, Conclusion.UNEXPLAINED, Conclusion.COST):
        of_it = by_conclusion[conclusion]
        if of_it:
            sign = -1 if conclusion is Conclusion.COST else 1
            chosen = max(of_it, key=lambda pair: sign * pair.saved_time)
            values: dict[str, object] = {
                "row": names.row(chosen.compressed),
                "share": numbers.change(chosen.saved_time),
                "interval": interval(chosen, words),
                "number": len(of_it),
                "cases": len(found),
            }
            said.append(words(f"compression_{conclusion.value}", **values))
    if said and not by_conclusion[Conclusion.PAID]:
        said.append(words("compression_paid_nowhere"))
    return said or [words("compression_undecided")]


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
