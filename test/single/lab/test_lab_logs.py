"""The lab's log parser: accepted logs, and errors that name the problem and its line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from lab_logs import plan, records, written
from refusals import refused

from horovod.common.sentences import Sentence
from horovod.lab import errors, folders
from horovod.lab.logs import read
from horovod.lab.runs import Epoch, Trial

PLAN = plan()
WHOLE = records(PLAN)  # steps in lines 1-3 and 5-7, epochs in 4 and 8, final in 9


def test_a_whole_log(tmp_path: Path) -> None:
    run = read(written(tmp_path, PLAN, WHOLE))
    assert run.plan == PLAN
    assert run.dataset == "d"
    assert run.step_seconds == (0.51, 0.52, 0.53, 0.54, 0.55, 0.56)
    assert run.step_waits == (0.001, 0.002, 0.003, 0.004, 0.005, 0.006)
    assert run.step_losses[:2] == (2.1, 1.1)
    first, second = run.epochs
    assert first == Epoch(1, 0.51 + 0.52 + 0.53, (2.1 + 1.1 + 2 / 3 + 0.1) / 3, 0.5, 0.911)
    assert second.number == 2
    assert second.seconds == pytest.approx(run.training_seconds) == pytest.approx(3.21)
    assert (run.bytes_sent, run.checksum, run.identical) == (1200, "c0ffee", True)


def test_a_run_without_its_load(tmp_path: Path) -> None:
    folder = written(tmp_path, PLAN, WHOLE)
    assert read(folder).load.during == 0.01
    (folder / folders.LOAD).write_text('{"before": 0}')
    with refused(errors.no_load, path=str(folder / folders.LOAD)):
        read(folder)


def test_a_serial_log_tells_of_no_traffic(tmp_path: Path) -> None:
    run = read(written(tmp_path, plan(1), records(plan(1))))
    assert run.bytes_sent == 0


def near(epoch: int, step: int, must: tuple[int, int]) -> dict[str, int]:
    return {"epoch": epoch, "step": step, "expected_epoch": must[0], "expected_step": must[1]}


@pytest.mark.parametrize(
    ("line", "changes", "row", "facts"),
    # line, changes, or None: the line is left out; the error
    [
        (2, {"loss": ...}, errors.no_field, {"event": "step", "field": "loss"}),
        (2, {"wait_seconds": ...}, errors.no_field, {"event": "step", "field": "wait_seconds"}),
        (4, {"accuracy": ...}, errors.no_field, {"event": "epoch", "field": "accuracy"}),
        (9, {"checksum": ...}, errors.no_field, {"event": "final", "field": "checksum"}),
        (9, {"bytes_sent": ...}, errors.no_field, {"event": "final", "field": "bytes_sent"}),
        (1, {"dataset": ...}, errors.no_field, {"event": "step", "field": "dataset"}),
        (3, {"loss": 10**400}, errors.wrong_field, {"field": "loss", "expected": "a number"}),
        (3, {"seconds": math.inf}, errors.wrong_field, {"field": "seconds", "got": math.inf}),
        (3, {"wait_seconds": 0.6}, errors.waited_longer, {"got": 0.6, "most": 0.53}),
        (5, {"seconds": -1.0}, errors.wrong_field, {"field": "seconds", "got": -1.0}),
        (8, {"accuracy": 98.5}, errors.wrong_field, {"field": "accuracy", "got": 98.5}),
        (9, {"bytes_sent": "many"}, errors.wrong_field, {"field": "bytes_sent", "got": "many"}),
        (9, {"identical": 1}, errors.wrong_field, {"field": "identical", "expected": "true or false"}),
        (1, {"compression": "none"}, errors.not_as_planned, {"field": "compression", "expected": "bit8"}),
        (1, {"ranks": 4}, errors.not_as_planned, {"field": "ranks", "got": 4, "expected": 2}),
        (6, {"seed": 7}, errors.not_as_planned, {"field": "seed", "got": 7, "expected": 1}),
        (6, {"dataset": "e"}, errors.changed, {"field": "dataset", "got": "e", "expected": "d"}),
        (2, {"step": 1}, errors.wrong_step, near(1, 1, (1, 2))),
        (5, {"epoch": 1}, errors.wrong_step, near(1, 1, (2, 1))),
        (6, {"steps": 4}, errors.changed, {"field": "steps", "got": 4, "expected": 3}),
        (4, {"event": "test"}, errors.no_record, {"choices": ["step", "epoch", "final"]}),
        (2, None, errors.wrong_step, near(1, 3, (1, 2))),
        (7, None, errors.short_epoch, {"epoch": 2, "step": 2, "steps": 3}),
        (4, None, errors.wrong_step, near(2, 1, (1, 4))),
        (8, None, errors.ended_early, {"epochs": 1, "steps": 3, "planned": 2}),
        (9, None, errors.no_final, {}),
    ],
)
def test_what_is_wrong_is_named(
    line: int, changes: dict[str, Any] | None, row: Sentence[Any], facts: dict[str, Any], tmp_path: Path
) -> None:
    found = [dict(record) for record in WHOLE]
    if changes is None:
        del found[line - 1]
    else:
        changed = found[line - 1] | changes
        found[line - 1] = {name: value for name, value in changed.items() if value is not ...}
    folder = written(tmp_path, PLAN, found)
    with refused(row, path=str(folder / folders.LOG), line=line, **facts):
        read(folder)


def test_a_training_may_diverge(tmp_path: Path) -> None:
    found = [dict(record) for record in WHOLE]
    found[2]["loss"], found[7]["loss"] = math.nan, math.inf
    run = read(written(tmp_path, PLAN, found))
    assert math.isnan(run.step_losses[2]) and math.isnan(run.epochs[0].train_loss)
    assert run.epochs[1].test_loss == math.inf


def test_a_log_that_was_cut_off(tmp_path: Path) -> None:
    folder = written(tmp_path, PLAN, WHOLE)
    log = folder / folders.LOG
    log.write_text(log.read_text()[:-1])
    with refused(errors.cut_off, line=9):
        read(folder)
    assert not folders.is_finished(tmp_path, PLAN)
    log.write_text(log.read_text()[:-20] + "\n")
    with refused(errors.no_json, line=9):
        read(folder)


def test_more_after_the_end(tmp_path: Path) -> None:
    with refused(errors.more_after_final, line=10):
        read(written(tmp_path, PLAN, [*WHOLE, WHOLE[0]]))


def test_missing_files(tmp_path: Path) -> None:
    folder = written(tmp_path, PLAN, WHOLE)
    (folder / folders.LOG).unlink()
    with refused(errors.unreadable, path=str(folder / folders.LOG)):
        read(folder)
    (folder / folders.PLAN).write_text("{}")
    with refused(errors.no_plan, path=str(folder / folders.PLAN)):
        read(folder)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    made = plan(4, "int4:rotation=hadamard", arguments=("--batch-size", "8"), place="a:2,b:2", digest="12")
    assert folders.plan_in(folders.prepare(tmp_path, made)) == made
    assert json.loads((folders.folder_of(tmp_path, made) / folders.PLAN).read_text())["place"] == "a:2,b:2"


TUNING = {
    "trials": [
        {"last_step": 4, "settings": {}, "steps": [0.5, 0.7], "is_incumbent": True},
        {"last_step": 6, "settings": {}, "steps": [0.4], "is_incumbent": False},
    ],
    "began_with": {"HOROVOD_CYCLE_TIME": "50", "HOROVOD_FUSION_THRESHOLD": "0"},
    "settings": {"HOROVOD_CYCLE_TIME": "1", "HOROVOD_FUSION_THRESHOLD": "0"},
}


def test_what_the_autotuner_tried(tmp_path: Path) -> None:
    folder = written(tmp_path, PLAN, WHOLE)
    assert (read(folder).trials, read(folder).tuned) == ((), ())
    (folder / folders.TUNING).write_text(json.dumps(TUNING))
    run = read(folder)
    assert run.trials == (Trial(3, 4, pytest.approx(0.6), True), Trial(6, 6, 0.4, False))
    assert run.tuned == ("HOROVOD_CYCLE_TIME=1",)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "[" * 100_000,
        json.dumps({**TUNING, "began_with": {}}),
        json.dumps({**TUNING, "trials": [{**TUNING["trials"][0], "steps": []}]}),  # type: ignore[dict-item]
        json.dumps({**TUNING, "trials": [{**TUNING["trials"][0], "last_step": 1}]}),  # type: ignore[dict-item]
        json.dumps({**TUNING, "trials": [{**TUNING["trials"][0], "steps": [math.nan]}]}),  # type: ignore[dict-item]
    ],
)
def test_a_log_that_no_autotuner_wrote(text: str, tmp_path: Path) -> None:
    folder = written(tmp_path, PLAN, WHOLE)
    (folder / folders.TUNING).write_text(text)
    with refused(errors.no_tuning_log, path=str(folder / folders.TUNING)):
        read(folder)
