"""One rank of an autotuning cell: it tunes, then compares the result with other settings in the same job.

The contenders run in blocks of steps, in turn, and tuning is off in the meantime.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from horovod.common import belongings
from horovod.torch.autotune import Tuning
from tuned import models

Settings = Mapping[str, str]
MOST_STEPS = 5000  # limit of the wait for the end of tuning
WATCHED = 10  # steps of a block with or without a tuner that watches; one if steps are long


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Measure a ``task``, which has a model, seconds, compression, and face ("optimizer" or "ddp").

    It also has sweep (choices by variable), defaults, pairs, steps (of a block), and best_of (the number of
    configurations of the sweep that are measured again).
    """
    trained = _ddp(task) if task["face"] == "ddp" else _optimizer(task)
    step, job_run, data, rank, close = trained
    spent = _time_spent_tuning()
    begin, count = time.perf_counter(), 0
    while data()["phase"] != "watching" and count < MOST_STEPS:
        step()
        count += 1
    seconds_of_tuning = time.perf_counter() - begin
    found: dict[str, Any] = data()
    share = sum(spent) / seconds_of_tuning
    watched = WATCHED if task["steps"] > 1 else 1
    watching = job_run(_watching, step, task["pairs"], watched)
    contest = _Contest(step, lambda settings: job_run(_fix, settings), task["steps"])
    began = found.get("began_with", {})
    swept = _sweep(contest, task, found["settings"])
    contenders = {"tuned": found["settings"], "default": task["defaults"] or began}
    if swept:
        contenders["best of the sweep"] = swept["best"]
    times = contest.interleaved(contenders, task["pairs"])
    result = {
        "rank": rank,
        "tuning": found,
        "tuning_seconds": seconds_of_tuning,
        "steps_until_watching": count,
        "share_of_the_tuner": share,
        "watching": watching,
        "times": times,
        "swept": swept,
    }
    close()
    return result


def _optimizer(task: dict[str, Any]) -> tuple[Any, ...]:
    import horovod.torch as hvd

    hvd.init()
    model = models.make(task["model"], task["seconds"])
    named = model.named_parameters()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-4), named, compression=task["compression"]
    )
    values = torch.ones(1, requires_grad=True)

    def step() -> None:
        optimizer.zero_grad()
        model(values).sum().backward()
        optimizer.step()

    def job_run(function: Callable[..., Any], *words: Any) -> Any:
        return function(*words)

    return step, job_run, hvd.tuning, hvd.rank(), hvd.shutdown


def _ddp(task: dict[str, Any]) -> tuple[Any, ...]:
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from horovod.torch import ddp

    dist.init_process_group("gloo")
    model = DistributedDataParallel(
        models.make(task["model"], task["seconds"]), bucket_cap_mb=task["bucket_mb"], init_sync=False
    )
    state = ddp.compress(model, task["compression"])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    values = torch.ones(1, requires_grad=True)

    def step() -> None:
        optimizer.zero_grad()
        model(values).sum().backward()
        optimizer.step()

    def job_run(function: Callable[..., Any], *words: Any) -> Any:
        return state.begin()._job.run(function, *words)

    return step, job_run, state.tuning, dist.get_rank(), dist.destroy_process_group


def _fix(settings: Settings) -> None:
    belongings.own(Tuning).fix(settings)


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


def _watching(step: Callable[[], None], rounds: int, steps: int) -> dict[str, list[float]]:
    """Return the seconds of a step with and without the watching tuner; all ranks switch together."""
    tuning = belongings.own(Tuning)
    times: dict[str, list[float]] = {"off": [], "watching": []}
    for number in range(rounds):
        for name in list(times) if number % 2 == 0 else reversed(list(times)):
            tuning._is_on = name == "watching"
            times[name].append(statistics.fmean(_timed(step, steps)))
    tuning._is_on = True
    return times


def _timed(step: Callable[[], None], steps: int) -> list[float]:
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return seconds


class _Contest:
    def __init__(self, step: Callable[[], None], use: Callable[[Settings], None], steps: int) -> None:
        self._step, self._use, self._steps = step, use, steps

    def block(self, settings: Settings) -> float:
        """Return the seconds of a step; the first step after the change does not count."""
        self._use(settings)
        self._step()
        return statistics.fmean(_timed(self._step, self._steps))

    def interleaved(self, contenders: Mapping[str, Settings], rounds: int) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {name: [] for name in contenders}
        order = list(contenders)
        for number in range(rounds):
            for name in order if number % 2 == 0 else reversed(order):
                times[name].append(self.block(contenders[name]))
        return times


def _sweep(contest: _Contest, task: dict[str, Any], rest: Settings) -> dict[str, Any]:
    """Measure all combinations of the knobs once, and the best combinations again, in turn."""
    if not task["sweep"]:
        return {}
    names = list(task["sweep"])
    every = [dict(zip(names, texts, strict=True)) for texts in itertools.product(*task["sweep"].values())]
    once = [contest.block({**rest, **each}) for each in every]
    order: Sequence[int] = sorted(range(len(every)), key=once.__getitem__)[: task["best_of"]]
    again = contest.interleaved({str(number): {**rest, **every[number]} for number in order}, 5)
    best = min(again, key=lambda number: statistics.median(again[number]))
    return {"best": {**rest, **every[int(best)]}, "count": len(every), "once": once}
