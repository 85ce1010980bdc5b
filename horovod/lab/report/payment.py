"""Whether compression pays: the effect of each compression, and the same training at several places.

The report says "paid" only if a saving of time is significant and less waiting explains most of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from horovod.lab.intervals import CONFIDENCE
from horovod.lab.report import numbers
from horovod.lab.report.comparison import DISTURBED_CONFIDENCE, Conclusion, Pair, pairs, saved
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Row

WIDE = 10  # times as much time: an interval's end beyond it is not printed

__all__ = ["change", "interval", "payment", "why_unknown"]


def payment(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    found = pairs(rows)
    said = [pair_sentences(pair, names, words) for pair in found]
    if any(pair.conclusion is not Conclusion.UNKNOWN for pair in found):
        said.append(words("rule", confidence=percent(CONFIDENCE)))
    return said + between_places(rows, names, words)


def pair_sentences(pair: Pair, names: Names, words: Words) -> str:
    row, plain = pair.compressed, pair.plain
    said = [
        words(
            "pair",
            row=names.row(row),
            time=numbers.seconds(row.training_seconds),
            plain=numbers.seconds(plain.training_seconds, words("s")),
            change=change(pair.saved_time, words),
        )
    ]
    if row.compression_ratio and row.wait_seconds and plain.wait_seconds and pair.ratio:
        key = "sends_fewer" if pair.saves_bytes else "sends_more" if pair.adds_bytes else "sends_alike"
        said.append(
            words(
                key,
                ratio=numbers.plain(1 / pair.ratio if pair.adds_bytes else pair.ratio, decimals=2),
                wait=numbers.milliseconds(row.wait_seconds),
                plain=numbers.milliseconds(plain.wait_seconds, words("ms")),
            )
        )
    return words.together(*said, *reasons(pair, words))


def reasons(pair: Pair, words: Words) -> list[str]:
    """The conclusion from the difference between seeds, with its reasons."""
    if pair.conclusion is Conclusion.UNKNOWN:
        return [words(f"pair_{why_unknown([pair])}")]
    said = [
        words("pair_interval", interval=interval(pair, words), seeds=words.count("seeds", pair.time.seeds))
    ]
    if pair.left_out:
        said.append(words("pair_left_out", seeds=words.count("seeds", pair.left_out)))
    if pair.is_disturbed:
        said.append(words("pair_disturbed", confidence=percent(DISTURBED_CONFIDENCE)))
    key = f"pair_{pair.conclusion.value}"
    if pair.conclusion is Conclusion.COST and pair.saves_bytes and pair.saved_waiting.high < 0:
        key = "pair_cost_coding"
    if pair.conclusion is Conclusion.UNEXPLAINED and not pair.saves_bytes:
        key = "pair_unexplained_bytes"
    elif pair.conclusion is Conclusion.UNEXPLAINED and not pair.saved_waiting.low > 0:
        key = "pair_unexplained_chance"
    return [*said, words(key, explained=f"{100 * pair.explained:.0f} %")]


def why_unknown(found: Sequence[Pair]) -> str:
    """The reason why pairs have too few seeds to compare: unequal load by others, or few seeds."""
    return "unlike" if any(pair.left_out for pair in found) else "one_seed"


def percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def change(share: float, words: Words) -> str:
    """A change of time: "12 % less", "3.0 % more"."""
    text = numbers.change(share) if abs(share) < WIDE else f"> {100 * WIDE} %"
    return words("less" if share >= 0 else "more", share=text)


def interval(pair: Pair, words: Words) -> str:
    ends = (saved(pair.time.low), saved(pair.time.high))
    return words("interval", low=change(ends[0], words), high=change(ends[1], words))


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
