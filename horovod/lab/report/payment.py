"""Whether compression pays: what each changed beside none, and the same training at several places."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.lab.report import numbers
from horovod.lab.report.comparison import CLEAR, Pair, differs, pairs
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Figure, Row

__all__ = ["payment"]


def payment(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    found = pairs(rows)
    said = [pair_sentence(pair, names, words) for pair in found]
    if any(pair.has_spread for pair in found):
        said.append(words("rule", share=f"{100 * CLEAR:.0f} %"))
    if not all(pair.has_spread for pair in found):
        said.append(words("times_one_seed"))
    return said + between_places(rows, names, words)


def pair_sentence(pair: Pair, names: Names, words: Words) -> str:
    row, plain = pair.compressed, pair.plain
    sentence = words(
        time_verdict(pair),
        row=names.row(row),
        time=numbers.seconds(row.training_seconds),
        plain=numbers.seconds(plain.training_seconds, words("s")),
        share=numbers.change(pair.saved_time),
    )
    if not row.compression_ratio or not row.wait_seconds or not plain.wait_seconds:
        return sentence
    if pair.ratio == 0:  # nothing was sent without compression
        return sentence
    sending = words(
        "sends_fewer" if pair.saves_bytes else "sends_more" if pair.adds_bytes else "sends_alike",
        ratio=numbers.plain(1 / pair.ratio if pair.adds_bytes else pair.ratio, decimals=2),
        wait=numbers.milliseconds(row.wait_seconds),
        plain=numbers.milliseconds(plain.wait_seconds, words("ms")),
    )
    return words.together(sentence, sending, *causes(pair, row.wait_seconds, plain.wait_seconds, words))


def time_verdict(pair: Pair) -> str:
    if pair.is_faster:
        return "pair_faster"
    if pair.is_slower:
        return "pair_slower"
    return "pair_same" if pair.has_spread else "pair_one_seed"


def causes(pair: Pair, compressed: Figure, plain: Figure, words: Words) -> list[str]:
    """Why ranks waited as they did: only where bytes were saved, and where time and waiting agree.

    Waiting may change and the time hardly, where it is a small part of a step: then nothing follows.
    """
    if not pair.saves_bytes:
        return []
    waited = (compressed.mean > plain.mean) - (compressed.mean < plain.mean)
    if not differs(compressed, plain):
        waited = 0
    took = pair.is_slower - pair.is_faster
    if waited != took:
        return [words("cause_unclear")] if waited and took else []
    cause = {-1: "cause_transfer", 0: "cause_not_bytes", 1: "cause_coding"}[took]
    return [words("cause" if pair.has_spread else "cause_one_seed", cause=words(cause))]


def between_places(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    said = []
    for row in rows:
        first = next((r for r in rows if (r.algorithm, r.ranks) == (row.algorithm, row.ranks)), row)
        if first.place == row.place:
            continue
        said.append(
            words(
                "between_places",
                row=names.series(row),
                here=names.place(first.place),
                there=names.place(row.place),
                first=numbers.milliseconds(first.step_seconds, words("ms")),
                second=numbers.milliseconds(row.step_seconds, words("ms")),
                factor=numbers.plain(row.step_seconds.mean / first.step_seconds.mean, decimals=2),
            )
        )
    return said
