"""Speed-up compared with the ideal, and the number of steps."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.lab import errors
from horovod.lab.report import numbers
from horovod.lab.report.comparison import serial_row, steps_per_epoch, undivided_rows
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Figure, Row
from horovod.lab.runs import SERIAL

__all__ = ["speed"]

ABOVE_IDEAL, NEAR_IDEAL, HALF_IDEAL = 1.05, 0.9, 0.5


def speed(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    """Only rows whose ranks divided the steps are compared with the ideal: the others did other work."""
    parallel = [row for row in rows if row.algorithm != SERIAL]
    judged = [row for row in parallel if row.speed_up]
    serial = serial_row(rows)
    if not judged or serial is None:
        return [words("no_serial")] if parallel else []
    undivided = [row for row in undivided_rows(rows) if row in judged]
    divided = [row for row in judged if row not in undivided]
    said = unequal_work(undivided, serial, names, words) if undivided else []
    if divided:
        if undivided:
            said.append(words("among_divided"))
        said += [steps_taken(largest(divided), serial, names, words), *beside_ideal(divided, names, words)]
    return said


def largest(rows: Sequence[Row]) -> Row:
    return max(rows, key=lambda row: row.ranks)


def steps_taken(row: Row, serial: Row, names: Names, words: Words) -> str:
    return words("steps_divided", ranks=row.ranks, **steps_words(row, serial, names))


def steps_words(row: Row, serial: Row, names: Names) -> dict[str, object]:
    steps, alone = round(steps_per_epoch(row)), round(steps_per_epoch(serial))
    return {"row": names.row(row), "steps": steps, "serial_steps": alone}


def unequal_work(rows: Sequence[Row], serial: Row, names: Names, words: Words) -> list[str]:
    """The times of these rows per example, as the number of examples differs."""
    most = largest(rows)
    is_same = steps_per_epoch(most) == steps_per_epoch(serial)
    said = [
        words("steps_same" if is_same else "steps_other", **steps_words(most, serial, names)),
        words("unequal_examples"),
    ]
    for row in rows:
        speed_up, _ = figures(row)
        examples = row.ranks * steps_per_epoch(row) / steps_per_epoch(serial)
        rate = speed_up.mean * examples
        said.append(
            words(
                "per_example_fell" if rate >= 1 else "per_example_rose",
                row=names.row(row),
                speed_up=numbers.factor(speed_up),
                examples=numbers.plain(examples, decimals=2),
                factor=numbers.plain(max(rate, 1 / rate), decimals=2),
            )
        )
    return said


def beside_ideal(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    best = max(rows, key=lambda row: figures(row)[1].mean)
    worst = min(rows, key=lambda row: figures(row)[1].mean)
    said = [words.together(words("speed_best", **speed_words(best, names)), words(speed_conclusion(best)))]
    if worst is not best:
        found = words("speed_worst", **speed_words(worst, names))
        said.append(words.together(found, words(speed_conclusion(worst))))
    return said


def figures(row: Row) -> tuple[Figure, Figure]:
    if row.speed_up is None or row.efficiency is None:
        raise errors.no_speed_up(algorithm=row.algorithm, ranks=row.ranks)
    return row.speed_up, row.efficiency


def speed_words(row: Row, names: Names) -> dict[str, object]:
    speed_up, efficiency = figures(row)
    return {
        "row": names.row(row),
        "ranks": row.ranks,
        "speed_up": numbers.factor(speed_up),
        "efficiency": numbers.percent(efficiency, "%"),
    }


def speed_conclusion(row: Row) -> str:
    speed_up, efficiency = figures(row)
    if speed_up.mean < 1:
        return "slower_than_serial"
    if efficiency.mean > ABOVE_IDEAL:
        return "above_ideal"
    if efficiency.mean >= NEAR_IDEAL:
        return "near_ideal"
    return "part_of_ideal" if efficiency.mean >= HALF_IDEAL else "far_from_ideal"
