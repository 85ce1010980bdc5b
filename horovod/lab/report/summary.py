"""The report's first paragraph. Which sentences it has, and what they say, follows from the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.lab.environment import Environment
from horovod.lab.report import numbers
from horovod.lab.report.comparison import crowded_rows, pairs, serial_row, usable_cores
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Row

__all__ = ["sentences"]


def sentences(rows: Sequence[Row], environment: Environment, names: Names, words: Words) -> list[str]:
    return [
        *scope(rows, words),
        *fastest(rows, names, words),
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
    shrunk = [pair for pair in found if pair.compressed.compression_ratio is not None]
    if shrunk:
        most = max(shrunk, key=lambda pair: ratio_of(pair.compressed))
        ratio = numbers.plain(ratio_of(most.compressed), decimals=2)
        said.append(words("bytes_saved", row=names.row(most.compressed), ratio=ratio))
    best = max(found, key=lambda pair: pair.saved_time)
    row, share = names.row(best.compressed), numbers.change(best.saved_time)
    faster = [pair for pair in found if pair.is_faster]
    slower = [pair for pair in found if pair.is_slower]
    if faster:
        key = "compression_paid" if not slower else "compression_paid_and_cost"
        said.append(
            words(key, row=row, share=share, faster=len(faster), slower=len(slower), cases=len(found))
        )
    elif best.is_slower:
        said.append(words("compression_cost", row=row, share=share))
    else:
        said.append(words("compression_did_not_pay"))
    return said


def ratio_of(row: Row) -> float:
    if row.compression_ratio is None:
        raise ValueError(f"{row.algorithm} with {row.ranks} ranks has no compression ratio")
    return row.compression_ratio.mean


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
