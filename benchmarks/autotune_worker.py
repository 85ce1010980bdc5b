"""One rank of an autotuning cell: it tunes, then compares the result with other settings in the same job.

The contenders run in blocks of steps, in turn, and tuning is off in the meantime. Steps wait as long as a
device would compute, a third of it forward, and gradients become ready in the order of a backward pass.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import contenders
import torch
import trained_models
from report import Record

import horovod.torch as hvd
from horovod.common import belongings
from horovod.torch.autotune import Tuning

Settings = Mapping[str, str]
SECONDS = {"mnist": 0.02, "resnet50": 0.12, "transformer": 0.12, "vgg16": 0.4}  # of computing in a step
PARTS = 12  # of a model, each of which waits separately
MOST_STEPS = 5000  # limit of the wait for the end of tuning
WATCHED = 10  # steps of a block with or without a tuner that watches; one if steps are long


class Training:
    """A job that tunes itself: steps of a DistributedOptimizer, or of DDP under ddp.compress."""

    def __init__(self, task: Record) -> None:
        self._is_ddp = task["face"] == "ddp"
        self._world = contenders.TorchWorld() if self._is_ddp else contenders.HorovodWorld()
        torch.manual_seed(1)
        shapes, seconds = trained_models.shapes_of(task["model"]), task["seconds"] or SECONDS[task["model"]]
        model = trained_models.waiting(shapes, seconds, PARTS)
        options = {"bucket_cap_mb": task["bucket_mb"]} if self._is_ddp else {}
        way = contenders.HOOK if self._is_ddp else contenders.HOROVOD
        self._trained = contenders.opened(f"{way} bit8", model, **options)
        self.tuning = self._trained.state.tuning if self._is_ddp else hvd.tuning
        self.close = self._world.close
        self._input = torch.ones(1, requires_grad=True)

    def step(self) -> None:
        self._trained.step(self._input, torch.Tensor.sum)

    def run(self, function: Callable[..., Any], *words: Any) -> Any:
        """Call a function in the thread and job of the tuner."""
        return self._trained.state.begin()._job.run(function, *words) if self._is_ddp else function(*words)

    def timed(self, steps: int) -> float:
        """Return the mean seconds of steps."""
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - begin) / steps

    def block(self, settings: Settings, steps: int) -> float:
        """Return the seconds of a step; the first step after the change does not count."""
        self.run(lambda: belongings.own(Tuning).fix(settings))
        self.step()
        return self.timed(steps)


def run(task: Record) -> Record:
    """Measure a ``task``, which has a model, seconds, and face ("optimizer" or "ddp").

    It also has sweep (choices by variable), defaults, pairs, steps (of a block), and best_of (the number of
    configurations of the sweep that are measured again).
    """
    training = Training(task)
    spent = _time_spent_tuning()
    begin, count = time.perf_counter(), 0
    while training.tuning()["phase"] != "watching" and count < MOST_STEPS:
        training.step()
        count += 1
    seconds_of_tuning = time.perf_counter() - begin
    found: Record = training.tuning()
    result = {
        "tuning": found,
        "tuning_seconds": seconds_of_tuning,
        "steps_until_watching": count,
        "share_of_the_tuner": sum(spent) / seconds_of_tuning,
        "watching": _watching(training, task),
    }
    swept = _sweep(training, task, found["settings"])
    settings = {"tuned": found["settings"], "default": task["defaults"] or found.get("began_with", {})}
    if swept:
        settings["best of the sweep"] = swept["best"]
    times = _in_turn(settings, task["pairs"], lambda name: training.block(settings[name], task["steps"]))
    training.close()
    return result | {"times": times, "swept": swept}


def _time_spent_tuning() -> list[float]:
    """From now on, collect the seconds of each call of the tuner's Python part at the end of a step."""
    spent: list[float] = []
    original = Tuning.step_ended

    def step_ended(self: Tuning, *words: Any) -> None:
        begin = time.perf_counter()
        original(self, *words)
        spent.append(time.perf_counter() - begin)

    Tuning.step_ended = step_ended  # type: ignore[method-assign]
    return spent


def _in_turn(names: Iterable[str], rounds: int, seconds: Callable[[str], float]) -> dict[str, list[float]]:
    """Return the seconds of each in each round; every other round is in the opposite order."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in list(times)[:: 1 if number % 2 == 0 else -1]:
            times[name].append(seconds(name))
    return times


def _watching(training: Training, task: Record) -> dict[str, list[float]]:
    """Return the seconds of a step with and without the watching tuner; all ranks switch together."""
    steps = WATCHED if task["steps"] > 1 else 1
    tuning = training.run(belongings.own, Tuning)

    def seconds(name: str) -> float:
        tuning._is_on = name == "watching"
        return training.timed(steps)

    found = training.run(_in_turn, ["off", "watching"], task["pairs"], seconds)
    tuning._is_on = True
    return found


def _sweep(training: Training, task: Record, rest: Settings) -> Record:
    """Measure all combinations of the knobs once, and the best combinations again, in turn."""
    if not task["sweep"]:
        return {}
    names = list(task["sweep"])
    every = [dict(zip(names, texts, strict=True)) for texts in itertools.product(*task["sweep"].values())]
    once = [training.block({**rest, **each}, task["steps"]) for each in every]
    order = sorted(range(len(every)), key=once.__getitem__)[: task["best_of"]]
    best = {str(number): every[number] for number in order}
    again = _in_turn(best, 5, lambda name: training.block({**rest, **best[name]}, task["steps"]))
    fastest = min(again, key=lambda name: statistics.median(again[name]))
    return {"best": {**rest, **best[fastest]}, "count": len(every), "once": once}
