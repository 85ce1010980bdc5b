"""Recomputes every number of the table of results from the lines of the logs."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab_logs import plan, records, written
from refusals import refused

from horovod.lab import errors, folders
from horovod.lab.logs import read
from horovod.lab.results import Figure, Row, table
from horovod.lab.runs import THIS_HOST, Run

SLOW = "2 hosts at 1gbit"


def runs_in(out: Path) -> list[Run]:
    """Three seeds of each configuration; each run has different times and bytes."""
    plans = [plan(1, seed=seed) for seed in (1, 2, 3)]
    for place in (THIS_HOST, SLOW):
        for compression in ("none", "bit8"):
            plans += [
                plan(ranks, compression, seed, place=place) for ranks in (2, 4) for seed in (1, 2, 3)
            ]
    made = []
    for number, each in enumerate(plans):
        sent = {"none": 4800, "bit8": 1210}[each.compression] + 3 * each.seed
        found = records(each, seconds=0.2 + 0.05 * (number % 7), bytes_sent=sent)
        made.append(read(written(out, each, found)))
    return made


def raw(run: Run, event: str, field: str) -> list[float]:
    """A field of all records of an event, from the log itself."""
    lines = (run.folder / folders.LOG).read_text().splitlines()
    return [json.loads(line)[field] for line in lines if json.loads(line)["event"] == event]


def recomputed(row: Row, value: Callable[[Run], Any]) -> Figure:
    values = [value(run) for run in row.runs]
    middle = sum(values) / len(values)
    squares = sum((each - middle) ** 2 for each in values)
    return Figure(middle, math.sqrt(squares / (len(values) - 1)))


def near(figure: Figure | None, expected: Figure) -> None:
    assert figure is not None
    assert figure.mean == pytest.approx(expected.mean)
    assert figure.spread == pytest.approx(expected.spread, rel=1e-6, abs=1e-12)


def test_every_number(tmp_path: Path) -> None:
    rows = table(runs_in(tmp_path))
    found = {(row.place, row.algorithm, row.ranks): row for row in rows}
    assert list(found) == [
        (THIS_HOST, "serial", 1),
        *((place, name, n) for place in (THIS_HOST, SLOW) for name in ("none", "bit8") for n in (2, 4)),
    ]

    def seconds(run: Run) -> float:
        return sum(raw(run, "step", "seconds"))

    serial = statistics.mean(seconds(run) for run in found[THIS_HOST, "serial", 1].runs)
    for (place, _, ranks), row in found.items():
        assert [run.plan.seed for run in row.runs] == [1, 2, 3]
        near(row.training_seconds, recomputed(row, seconds))
        near(row.step_seconds, recomputed(row, lambda run: statistics.median(raw(run, "step", "seconds"))))
        near(row.accuracy, recomputed(row, lambda run: raw(run, "epoch", "accuracy")[-1]))
        faster = serial / recomputed(row, seconds).mean
        spread = recomputed(row, lambda run: serial / seconds(run)).spread
        assert spread is not None
        near(row.speed_up, Figure(faster, spread))
        near(row.efficiency, Figure(faster / ranks, spread / ranks))
        if ranks == 1:
            assert row.wait_seconds is row.bytes_per_step is row.compression_ratio is None
            continue
        waits = recomputed(row, lambda run: statistics.median(raw(run, "step", "wait_seconds")))
        near(row.wait_seconds, waits)
        near(row.bytes_per_step, recomputed(row, lambda run: raw(run, "final", "bytes_sent")[0] / 6))
        sent = recomputed(row, lambda run: raw(run, "final", "bytes_sent")[0])
        plain = recomputed(found[place, "none", ranks], lambda run: raw(run, "final", "bytes_sent")[0])
        assert row.compression_ratio is not None
        assert row.compression_ratio.mean == pytest.approx(plain.mean / sent.mean)


def test_the_ratio_is_of_what_is_sent(tmp_path: Path) -> None:
    """Also for fp16, topk and powersgd, whose tensors are smaller before the core counts them."""
    runs = []
    for each, sent in ((plan(2, "none"), 4800), (plan(2, "topk"), 48)):
        runs.append(read(written(tmp_path, each, records(each, bytes_sent=sent))))
    assert [row.compression_ratio for row in table(runs)] == [Figure(1.0, None), Figure(100.0, None)]


def test_what_has_no_meaning_is_none(tmp_path: Path) -> None:
    (row,) = table([read(written(tmp_path, plan(), records(plan())))])
    assert row.speed_up is row.efficiency is row.compression_ratio is None
    assert row.training_seconds == Figure(pytest.approx(3.21), None)  # one seed: no spread


def test_runs_that_do_not_compare(tmp_path: Path) -> None:
    one = read(written(tmp_path, plan(), records(plan())))
    longer = plan(seed=2, epochs=3)
    with refused(errors.runs_differ, field="number of epochs", got=3, expected=2):
        table([one, read(written(tmp_path, longer, records(longer)))])
    other = [record | {"dataset": "digits"} for record in records(plan(seed=3))]
    with refused(errors.runs_differ, field="data set", got="digits", expected="d"):
        table([one, read(written(tmp_path, plan(seed=3), other))])
    with refused(errors.same_run, path=str(one.folder), other=str(one.folder)):
        table([one, one])
