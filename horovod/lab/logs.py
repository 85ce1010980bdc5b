"""Reads the log of a run, and believes none that is not whole: docs/lab.md has the table of its fields.

What the autotuner wrote beside it is its own (``horovod.tune``): of that only what is drawn is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from horovod.lab import folders
from horovod.lab.runs import Epoch, Plan, Run, Trial

_Check = Callable[[Any], bool]
_AGAIN = "start the lab again to redo the run"
CLOCKS = 0.01  # seconds by which the two clocks of a step may differ


class LogError(ValueError):
    """A log is missing, or is not what a finished run writes; the message names the file and the line."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    try:
        return _is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer beyond any float
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


# Not finite in a training that has diverged, which is a result like others.
_LOSS = (lambda value: _is_number(value) and (_is_finite(value) or isinstance(value, float)), "a number")
_SECONDS = (lambda value: _is_finite(value) and value >= 0, "a number of seconds")
_COUNT = (_is_count, "a whole number of 0 or more")
_SHARE = (lambda value: _is_finite(value) and 0 <= value <= 1, "a number from 0 to 1")
_TEXT = (_is_text, "a text")
_TRUTH = (lambda value: isinstance(value, bool), "true or false")
COMMON: dict[str, tuple[_Check, str]] = {
    "dataset": _TEXT,
    "compression": _TEXT,
    "ranks": _COUNT,
    "seed": _COUNT,
    "epoch": _COUNT,
}
FIELDS: dict[str, dict[str, tuple[_Check, str]]] = {
    "step": {"step": _COUNT, "steps": _COUNT, "seconds": _SECONDS, "wait_seconds": _SECONDS, "loss": _LOSS},
    "epoch": {"loss": _LOSS, "accuracy": _SHARE},
    "final": {"checksum": _TEXT, "identical": _TRUTH},
}
TRAFFIC = {"bytes_sent": _COUNT}  # in "final", but of a run without Horovod


def read(folder: Path) -> Run:
    """The finished run in a folder, by its plan.json and its log. LogError unless all is as it must be."""
    plan = folders.plan_in(folder)
    if plan is None:
        raise LogError(f"{folder / folders.PLAN} is missing or no plan: {_AGAIN}")
    return _Reader(folder / folders.LOG, plan).run(folder)


class _Reader:
    """Goes through the lines in order, and knows where each step and epoch must come."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self._path, self._plan = path, plan
        self._line = 0
        self._dataset: str | None = None
        self._steps = 0  # of each epoch
        self._step = 0  # of this epoch
        self._seconds: list[float] = []
        self._waits: list[float] = []
        self._losses: list[float] = []
        self._epochs: list[Epoch] = []

    def run(self, folder: Path) -> Run:
        final: dict[str, Any] | None = None
        for record in self._records():
            if final is not None:
                self._fail("there is more after the final record")
            event = record["event"]
            if event == "step":
                self._take_step(record)
            elif event == "epoch":
                self._take_epoch(record)
            else:
                self._check_final(record)
                final = record
        if final is None:
            self._line += 1
            self._fail("the final record is missing: the run did not end")
        load = folders.load_in(folder)
        if load is None:
            raise LogError(f"{folder / folders.LOAD} is missing or no record of a load: {_AGAIN}")
        trials, tuned = _tuning_in(folder / folders.TUNING)
        return Run(
            plan=self._plan,
            folder=folder,
            dataset=str(self._dataset),
            step_seconds=tuple(self._seconds),
            step_waits=tuple(self._waits),
            step_losses=tuple(self._losses),
            epochs=tuple(self._epochs),
            bytes_sent=final.get("bytes_sent", 0),
            checksum=final["checksum"],
            identical=final["identical"],
            load=load,
            trials=trials,
            tuned=tuned,
        )

    def _records(self) -> Iterator[dict[str, Any]]:
        try:
            text = self._path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise LogError(f"{self._path} cannot be read: {error}") from None
        for line in text.splitlines(keepends=True):
            self._line += 1
            if not line.endswith("\n"):
                self._fail("the line is cut off: the run did not end")
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:  # also an integer of thousands of digits
                self._fail(f"not JSON: {error}")
            if not isinstance(record, dict) or record.get("event") not in list(FIELDS):  # it may be a list
                self._fail(f"no record: its event must be one of {', '.join(FIELDS)}")
            self._check_fields(record)
            yield record

    def _check_fields(self, record: dict[str, Any]) -> None:
        wanted = {**COMMON, **FIELDS[record["event"]]}
        for name, (is_right, meaning) in wanted.items():
            if name not in record:
                self._fail(f"the {record['event']} record has no {name}")
            if not is_right(record[name]):
                self._fail(f"{name} is {record[name]!r}, and must be {meaning}")
        planned = {"ranks": self._plan.ranks, "seed": self._plan.seed, "compression": self._plan.compression}
        if self._plan.ranks == 1:
            del planned["compression"]  # nothing travels
        for name, value in planned.items():
            if record[name] != value:
                self._fail(f"{name} is {record[name]!r}, but the plan of this run says {value!r}")
        if record["dataset"] != (self._dataset or record["dataset"]):
            self._fail(f"dataset is {record['dataset']!r}, and was {self._dataset!r} before")
        self._dataset = record["dataset"]

    def _take_step(self, record: dict[str, Any]) -> None:
        expected = (len(self._epochs) + 1, self._step + 1)
        if (record["epoch"], record["step"]) != expected:
            self._fail(
                f"step {record['step']} of epoch {record['epoch']} where step {expected[1]} of epoch "
                f"{expected[0]} must come"
            )
        if record["steps"] != (self._steps or record["steps"]):
            self._fail(f"steps is {record['steps']}, and was {self._steps} before")
        if record["step"] > record["steps"]:
            self._fail(f"step {record['step']} of an epoch of {record['steps']}")
        if record["wait_seconds"] > record["seconds"] + CLOCKS:
            seconds = record["seconds"]
            self._fail(f"wait_seconds is {record['wait_seconds']}, more than the step's {seconds} seconds")
        self._steps, self._step = record["steps"], record["step"]
        self._seconds.append(float(record["seconds"]))
        self._waits.append(float(record["wait_seconds"]))
        self._losses.append(float(record["loss"]))

    def _take_epoch(self, record: dict[str, Any]) -> None:
        number = len(self._epochs) + 1
        if record["epoch"] != number:
            self._fail(f"the end of epoch {record['epoch']} where that of epoch {number} must come")
        if self._step == 0 or self._step != self._steps:
            self._fail(f"epoch {number} ends after {self._step} of {self._steps} steps")
        losses = self._losses[-self._step :]
        self._epochs.append(
            Epoch(
                number=number,
                seconds=sum(self._seconds),
                train_loss=sum(losses) / len(losses),
                test_loss=float(record["loss"]),
                accuracy=float(record["accuracy"]),
            )
        )
        self._step = 0

    def _check_final(self, record: dict[str, Any]) -> None:
        if len(self._epochs) != self._plan.epochs or self._step:
            self._fail(
                f"the run ended after {len(self._epochs)} epochs and {self._step} steps; its plan has "
                f"{self._plan.epochs} epochs"
            )
        for name, (is_right, meaning) in TRAFFIC.items():
            if name not in record and self._plan.ranks > 1:
                self._fail(f"the final record has no {name}")
            if name in record and not is_right(record[name]):
                self._fail(f"{name} is {record[name]!r}, and must be {meaning}")

    def _fail(self, what: str) -> NoReturn:
        raise LogError(f"{self._path}, line {self._line}: {what}")


def _tuning_in(path: Path) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    """The trials in the autotuner's log, and the settings that it changed. Nothing where there is no log, as
    of a run that ended while it still searched.
    """
    if not path.exists():
        return (), ()
    try:
        found = json.loads(path.read_text())
        trials = tuple(_trial(each) for each in found["trials"])
        began, now = found["began_with"], found["settings"]
        return trials, tuple(f"{name}={text}" for name, text in now.items() if began[name] != text)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise LogError(f"{path} is no log of the autotuner ({error!r}): {_AGAIN}") from None


def _trial(record: dict[str, Any]) -> Trial:
    seconds, last = [float(step) for step in record["steps"]], record["last_step"]
    if not _is_count(last) or not seconds or not all(map(_is_finite, seconds)) or len(seconds) > last:
        raise ValueError(f"no trial: {record}")
    return Trial(last - len(seconds) + 1, last, sum(seconds) / len(seconds), bool(record["is_incumbent"]))
