"""Reads the log of a run, and refuses an incomplete one: docs/lab.md has the table of its fields.

The autotuner's log beside it has its own format (``horovod.tune``): only the plotted part of it is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from horovod.lab import errors, folders
from horovod.lab.runs import Epoch, Plan, Run, Trial

_Check = Callable[[Any], bool]
CLOCKS = 0.01  # seconds by which the two clocks of a step may differ


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_finite(value: Any) -> bool:
    try:
        return _is_number(value) and math.isfinite(value)
    except OverflowError:  # an integer beyond any float
        return False


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# Not finite in a training that has diverged, which is a valid result.
_LOSS = (lambda value: _is_number(value) and (_is_finite(value) or isinstance(value, float)), "a number")
_SECONDS = (lambda value: _is_finite(value) and value >= 0, "a number of seconds")
_COUNT = (_is_count, "a whole number of 0 or more")
_SHARE = (lambda value: _is_finite(value) and 0 <= value <= 1, "a number from 0 to 1")
_TEXT = (lambda value: isinstance(value, str) and value != "", "a text")
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
TRAFFIC = {"bytes_sent": _COUNT}  # in "final", except in a run without Horovod


def read(folder: Path) -> Run:
    """The finished run in a folder, by its plan.json and its log. LogError unless both are valid."""
    plan = folders.plan_in(folder)
    if plan is None:
        raise errors.no_plan(path=str(folder / folders.PLAN))
    return _Reader(folder / folders.LOG, plan).run(folder)


class _Reader:
    """Parses the lines in order, and knows at which line each step and epoch must come."""

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
                raise errors.more_after_final(**self._here())
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
            raise errors.no_final(**self._here())
        load = folders.load_in(folder)
        if load is None:
            raise errors.no_load(path=str(folder / folders.LOAD))
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
            raise errors.unreadable(path=str(self._path), why=str(error)) from None
        for line in text.splitlines(keepends=True):
            self._line += 1
            if not line.endswith("\n"):
                raise errors.cut_off(**self._here())
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:  # also an integer of thousands of digits
                raise errors.no_json(**self._here(), why=str(error)) from None
            if not isinstance(record, dict) or record.get("event") not in list(FIELDS):  # event may be a list
                raise errors.no_record(**self._here(), choices=list(FIELDS))
            self._check_fields(record)
            yield record

    def _check_fields(self, record: dict[str, Any]) -> None:
        wanted = {**COMMON, **FIELDS[record["event"]]}
        for name, (is_right, meaning) in wanted.items():
            if name not in record:
                raise errors.no_field(**self._here(), event=record["event"], field=name)
            self._check_field(record, name, is_right, meaning)
        planned = {"ranks": self._plan.ranks, "seed": self._plan.seed, "compression": self._plan.compression}
        if self._plan.ranks == 1:
            del planned["compression"]  # a single rank sends nothing
        for name, value in planned.items():
            if record[name] != value:
                raise errors.not_as_planned(**self._here(), field=name, got=record[name], expected=value)
        if record["dataset"] != (self._dataset or record["dataset"]):
            raise errors.changed(
                **self._here(), field="dataset", got=record["dataset"], expected=self._dataset
            )
        self._dataset = record["dataset"]

    def _take_step(self, record: dict[str, Any]) -> None:
        found = {"epoch": record["epoch"], "step": record["step"]}
        expected = {"expected_epoch": len(self._epochs) + 1, "expected_step": self._step + 1}
        if [*found.values()] != [*expected.values()]:
            raise errors.wrong_step(**self._here(), **found, **expected)
        if record["steps"] != (self._steps or record["steps"]):
            raise errors.changed(**self._here(), field="steps", got=record["steps"], expected=self._steps)
        if record["step"] > record["steps"]:
            raise errors.step_beyond(**self._here(), step=record["step"], steps=record["steps"])
        if record["wait_seconds"] > record["seconds"] + CLOCKS:
            got, most = record["wait_seconds"], record["seconds"]
            raise errors.waited_longer(**self._here(), got=got, most=most)
        self._steps, self._step = record["steps"], record["step"]
        self._seconds.append(float(record["seconds"]))
        self._waits.append(float(record["wait_seconds"]))
        self._losses.append(float(record["loss"]))

    def _take_epoch(self, record: dict[str, Any]) -> None:
        number = len(self._epochs) + 1
        if record["epoch"] != number:
            raise errors.wrong_epoch(**self._here(), got=record["epoch"], expected=number)
        if self._step == 0 or self._step != self._steps:
            raise errors.short_epoch(**self._here(), epoch=number, step=self._step, steps=self._steps)
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
            epochs, planned = len(self._epochs), self._plan.epochs
            raise errors.ended_early(**self._here(), epochs=epochs, steps=self._step, planned=planned)
        for name, (is_right, meaning) in TRAFFIC.items():
            if name not in record and self._plan.ranks > 1:
                raise errors.no_field(**self._here(), event="final", field=name)
            if name in record:
                self._check_field(record, name, is_right, meaning)

    def _check_field(self, record: dict[str, Any], name: str, is_right: _Check, meaning: str) -> None:
        if not is_right(record[name]):
            raise errors.wrong_field(**self._here(), field=name, got=record[name], expected=meaning)

    def _here(self) -> dict[str, Any]:
        return {"path": str(self._path), "line": self._line}


def _tuning_in(path: Path) -> tuple[tuple[Trial, ...], tuple[str, ...]]:
    """The trials in the autotuner's log, and the settings that it changed.

    Empty without a log, as for a run that ended during the search.
    """
    if not path.exists():
        return (), ()
    try:
        found = json.loads(path.read_text())
        trials = tuple(_trial(each) for each in found["trials"])
        began, now = found["began_with"], found["settings"]
        return trials, tuple(f"{name}={text}" for name, text in now.items() if began[name] != text)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise errors.no_tuning_log(path=str(path), why=repr(error)) from None


def _trial(record: dict[str, Any]) -> Trial:
    seconds, last = [float(step) for step in record["steps"]], record["last_step"]
    if not _is_count(last) or not seconds or not all(map(_is_finite, seconds)) or len(seconds) > last:
        raise errors.no_trial(got=record)
    return Trial(last - len(seconds) + 1, last, sum(seconds) / len(seconds), bool(record["is_incumbent"]))
