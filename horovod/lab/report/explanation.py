"""The comparison and its explanation. Every sentence is chosen by the numbers that it speaks of."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.lab.environment import Environment
from horovod.lab.report import numbers
from horovod.lab.report.codec_errors import CodecError
from horovod.lab.report.comparison import CLEAR, Pair, differs, pairs, serial_row, usable_cores
from horovod.lab.report.document import Section
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Figure, Row
from horovod.lab.runs import SERIAL, Run

__all__ = ["sections"]

NEAR_IDEAL, HALF_IDEAL = 0.9, 0.5


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


def speed(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    """Speed-up beside the ideal, and what happened to the number of steps."""
    parallel = [row for row in rows if row.algorithm != SERIAL]
    judged = [(row.efficiency.mean, row) for row in parallel if row.efficiency and row.speed_up]
    serial = serial_row(rows)
    if not judged or serial is None:
        return [words("no_serial")] if parallel else []
    said = steps_taken(serial, max(parallel, key=lambda row: row.ranks), names, words)
    best = max(judged, key=lambda pair: pair[0])[1]
    worst = min(judged, key=lambda pair: pair[0])[1]
    said.append(words.together(words("speed_best", **speed_words(best, names)), words(speed_verdict(best))))
    if worst is not best:
        found = words("speed_worst", **speed_words(worst, names))
        said.append(words.together(found, words(speed_verdict(worst))))
    return said


def speed_words(row: Row, names: Names) -> dict[str, object]:
    if row.speed_up is None or row.efficiency is None:
        raise ValueError(f"{row.algorithm} with {row.ranks} ranks has no speed-up")
    efficiency = numbers.percent(row.efficiency, "%")
    speed_up = numbers.factor(row.speed_up)
    return {"row": names.row(row), "ranks": row.ranks, "speed_up": speed_up, "efficiency": efficiency}


def speed_verdict(row: Row) -> str:
    if row.speed_up is None or row.efficiency is None:
        raise ValueError(f"{row.algorithm} with {row.ranks} ranks has no speed-up")
    if row.speed_up.mean < 1:
        return "slower_than_serial"
    if row.efficiency.mean >= NEAR_IDEAL:
        return "near_ideal"
    return "part_of_ideal" if row.efficiency.mean >= HALF_IDEAL else "far_from_ideal"


def steps_taken(serial: Row, row: Row, names: Names, words: Words) -> list[str]:
    alone, together = steps_per_epoch(serial), steps_per_epoch(row)
    ratio = alone / together
    values = {"row": names.row(row), "steps": round(together), "serial_steps": round(alone)}
    if abs(ratio / row.ranks - 1) < 0.02:
        return [words("steps_divided", ranks=row.ranks, **values)]
    return [words("steps_same" if abs(ratio - 1) < 0.02 else "steps_other", **values)]


def steps_per_epoch(row: Row) -> float:
    return len(row.runs[0].step_seconds) / row.runs[0].plan.epochs


def limits(rows: Sequence[Row], environment: Environment, names: Names, words: Words) -> list[str]:
    """For each place, where a step of its largest uncompressed run goes."""
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
    elif cores is None:
        said.append(words("limit_unknown"))
    else:
        said.append(words("limit_cores" if row.ranks > cores else "limit_compute"))
    return said


def payment(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    """What each compression changed beside none, and the same training at several places."""
    said = [pair_sentence(pair, names, words) for pair in pairs(rows)]
    if said:
        said.append(words("rule", share=f"{100 * CLEAR:.0f} %"))
    return said + between_places(rows, names, words)


def pair_sentence(pair: Pair, names: Names, words: Words) -> str:
    row, plain = pair.compressed, pair.plain
    values = {
        "row": names.row(row),
        "time": numbers.seconds(row.training_seconds),
        "plain": numbers.seconds(plain.training_seconds, words("s")),
        "share": numbers.change(pair.saved_time),
    }
    key = "pair_faster" if pair.is_faster else "pair_slower" if pair.is_slower else "pair_same"
    sentence = words(key, **values)
    if row.compression_ratio and row.wait_seconds and plain.wait_seconds:
        waiting = words(
            waiting_verdict(row.wait_seconds, plain.wait_seconds),
            ratio=numbers.plain(row.compression_ratio.mean, decimals=2),
            wait=numbers.milliseconds(row.wait_seconds),
            plain=numbers.milliseconds(plain.wait_seconds, words("ms")),
        )
        return words.together(sentence, waiting)
    return sentence


def waiting_verdict(compressed: Figure, plain: Figure) -> str:
    if not differs(compressed, plain):
        return "waiting_same"
    return "waiting_less" if compressed.mean < plain.mean else "waiting_more"


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


def learning(rows: Sequence[Row], errors: Sequence[CodecError], names: Names, words: Words) -> list[str]:
    """Accuracy with and without compression, and with fewer and larger steps."""
    found = pairs(rows)
    said = []
    if found:
        most = max(found, key=lambda pair: abs(pair.accuracy_change))
        points = numbers.plain(100 * abs(most.accuracy_change), decimals=2)
        said.append(words("accuracy_change", row=names.row(most.compressed), points=points))
        spreads = [figure.spread for figure in (most.plain.accuracy, most.compressed.accuracy)]
        known = [spread for spread in spreads if spread is not None]
        if known:
            key = "within_seeds" if abs(most.accuracy_change) <= 2 * max(known) else "beyond_seeds"
            said.append(words(key, spread=numbers.plain(100 * max(known), decimals=2)))
        else:
            said.append(words("seeds_unknown"))
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


def fewer_updates(serial: Row, row: Row, names: Names, words: Words) -> list[str]:
    steps, alone = len(row.runs[0].step_seconds), len(serial.runs[0].step_seconds)
    change = 100 * (row.accuracy.mean - serial.accuracy.mean)
    if steps >= alone:
        return []
    key = "fewer_updates_lower" if change < 0 else "fewer_updates_not_lower"
    points = numbers.plain(abs(change), decimals=2)
    return [words(key, row=names.row(row), steps=steps, alone=alone, points=points)]


def same_model(rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    parallel = [(row, run) for row in rows for run in row.runs if run.plan.ranks > 1]
    apart = [f"{names.row(row)} ({run.folder.name})" for row, run in parallel if not run.identical]
    if not parallel:
        return []
    said = words("not_identical", runs=words.listed(apart)) if apart else words("identical")
    return [said, *beside_places([run for _, run in parallel], words)]


def beside_places(runs: Sequence[Run], words: Words) -> list[str]:
    """Whether the same training ended with the same parameters wherever it ran."""
    found: dict[tuple[str, int, int], dict[str, str]] = {}
    for run in runs:
        plan = run.plan
        found.setdefault((plan.algorithm, plan.ranks, plan.seed), {})[plan.place] = run.checksum
    several = [checksums for checksums in found.values() if len(checksums) > 1]
    if not several:
        return []
    is_same = all(len(set(checksums.values())) == 1 for checksums in several)
    return [words("places_same" if is_same else "places_apart")]
