"""The lab's reader of logs: what it reads, and that it names what is wrong, and where."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from lab_logs import plan, records, written

from horovod.lab import folders
from horovod.lab.logs import LogError, read
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
    with pytest.raises(LogError, match=r"load.json is missing or no record of a load: start the lab again"):
        read(folder)


def test_a_serial_log_tells_of_no_traffic(tmp_path: Path) -> None:
    run = read(written(tmp_path, plan(1), records(plan(1))))
    assert run.bytes_sent == 0


SPOILED: dict[str, tuple[int, dict[str, Any] | None, str]] = {
    # what: (line, changes, or None: the line is left out; what the error says)
    "no loss": (2, {"loss": ...}, "line 2: the step record has no loss"),
    "no wait": (2, {"wait_seconds": ...}, "line 2: the step record has no wait_seconds"),
    "no accuracy": (4, {"accuracy": ...}, "line 4: the epoch record has no accuracy"),
    "no checksum": (9, {"checksum": ...}, "line 9: the final record has no checksum"),
    "no bytes": (9, {"bytes_sent": ...}, "line 9: the final record has no bytes_sent"),
    "no data set": (1, {"dataset": ...}, "line 1: the step record has no dataset"),
    "a loss of too many digits": (3, {"loss": 10**400}, f"line 3: loss is {10**400}, and must be a number"),
    "seconds without end": (3, {"seconds": math.inf}, "line 3: seconds is inf, and must be a number"),
    "waiting for longer than the step": (3, {"wait_seconds": 0.6}, "line 3: wait_seconds is 0.6, more than"),
    "negative seconds": (5, {"seconds": -1.0}, "line 5: seconds is -1.0"),
    "accuracy in percent": (8, {"accuracy": 98.5}, "line 8: accuracy is 98.5, and must be a number"),
    "bytes of text": (9, {"bytes_sent": "many"}, "line 9: bytes_sent is 'many'"),
    "identical as number": (9, {"identical": 1}, "line 9: identical is 1, and must be true or false"),
    "another compression": (1, {"compression": "none"}, "line 1: compression is 'none', but the plan"),
    "other ranks": (1, {"ranks": 4}, "line 1: ranks is 4, but the plan of this run says 2"),
    "another seed": (6, {"seed": 7}, "line 6: seed is 7, but the plan of this run says 1"),
    "other data": (6, {"dataset": "e"}, "line 6: dataset is 'e', and was 'd' before"),
    "a step twice": (2, {"step": 1}, "line 2: step 1 of epoch 1 where step 2 of epoch 1 must come"),
    "a step of another epoch": (5, {"epoch": 1}, "line 5: step 1 of epoch 1 where step 1 of epoch 2"),
    "steps that change": (6, {"steps": 4}, "line 6: steps is 4, and was 3 before"),
    "an unknown event": (4, {"event": "test"}, "line 4: no record"),
    "a missing step": (2, None, "line 2: step 3 of epoch 1 where step 2 of epoch 1 must come"),
    "a missing last step": (7, None, "line 7: epoch 2 ends after 2 of 3 steps"),
    "a missing epoch": (4, None, "line 4: step 1 of epoch 2 where step 4 of epoch 1 must come"),
    "a missing last epoch": (8, None, "line 8: the run ended after 1 epochs and 3 steps"),
    "a missing final": (9, None, "line 9: the final record is missing"),
}


@pytest.mark.parametrize("what", SPOILED)
def test_what_is_wrong_is_named(what: str, tmp_path: Path) -> None:
    line, changes, says = SPOILED[what]
    found = [dict(record) for record in WHOLE]
    if changes is None:
        del found[line - 1]
    else:
        changed = found[line - 1] | changes
        found[line - 1] = {name: value for name, value in changed.items() if value is not ...}
    folder = written(tmp_path, PLAN, found)
    with pytest.raises(LogError, match=re.escape(f"{folder / folders.LOG}, {says}")):
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
    with pytest.raises(LogError, match="line 9: the line is cut off"):
        read(folder)
    assert not folders.is_finished(tmp_path, PLAN)
    log.write_text(log.read_text()[:-20] + "\n")
    with pytest.raises(LogError, match="line 9: not JSON"):
        read(folder)


def test_more_after_the_end(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="line 10: there is more after the final record"):
        read(written(tmp_path, PLAN, [*WHOLE, WHOLE[0]]))


def test_missing_files(tmp_path: Path) -> None:
    folder = written(tmp_path, PLAN, WHOLE)
    (folder / folders.LOG).unlink()
    with pytest.raises(LogError, match=re.escape(f"{folder / folders.LOG} cannot be read")):
        read(folder)
    (folder / folders.PLAN).write_text("{}")
    with pytest.raises(LogError, match=re.escape(f"{folder / folders.PLAN} is missing or no plan")):
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
    with pytest.raises(LogError, match=r"tuning.json is no log of the autotuner .*: start the lab again"):
        read(folder)
