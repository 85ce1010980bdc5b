"""The tuning of this rank's job: what horovod.tune has to know of it, and the end of each step.

A DistributedOptimizer and a model under ``ddp.compress`` say when a step has ended. The first of a job that
does is what steps are counted by; others, as the second optimizer of a GAN, take the settings that are found.
All of it is off without HOROVOD_AUTOTUNE=1.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from horovod import _native as native
from horovod.common import belongings, waiting
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.membership import Membership
from horovod.common.options import BY_VARIABLE
from horovod.common.process_sets import global_process_set
from horovod.torch.workloads import OwnKnob, Watched, Workload, space_of
from horovod.tune.cache import Cache
from horovod.tune.decision import Decision
from horovod.tune.report import as_data, table
from horovod.tune.scores import shares_of
from horovod.tune.tuner import Agreement, Director, Plan, Tuner

__all__ = ["Tuned", "Tuning", "step_ended", "tuning"]

_OPERATION = "horovod.tune"
LAUNCH_STEPS = "HOROVOD_TUNE_LAUNCH_STEPS"


def is_on() -> bool:
    """As ranks of this job have found alike when they met."""
    return basics.member().tuning["HOROVOD_AUTOTUNE"] == "1"


class _CoreAgreement:
    def __init__(self, engine: native.Engine, handle: int) -> None:
        self._engine, self._handle = engine, handle

    def text(self) -> str:
        return np.from_dlpack(waiting.wait(self._engine, self._handle).buffer()).tobytes().decode()


class _NoAgreement:
    def __init__(self, error: HorovodInternalError) -> None:
        self._error = error

    def text(self) -> str:
        raise self._error


class _CoreAgreements:
    """By an operation of the core, which takes its own settings in the order of all operations."""

    def __init__(self, engine: native.Engine) -> None:
        self._engine = engine

    def start(self, text: str) -> Agreement:
        """Others may have made their last step, and left: only who makes another one needs to hear of it."""
        try:
            return _CoreAgreement(self._engine, self._engine.tune(_OPERATION, text))
        except HorovodInternalError as error:
            return _NoAgreement(error)

    def latest(self) -> str:
        return self._engine.tuned


class _Probe:
    """For ``horovodrun --tune-launch``, which ends the job when it has read what a step takes."""

    _WARMUP = 10

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted + self._WARMUP
        self._times: list[float] = []

    def step_ended(self) -> None:
        self._times.append(time.perf_counter())
        if len(self._times) == self._wanted + 1 and basics.rank() == 0:
            steps = [end - begin for begin, end in itertools.pairwise(self._times[self._WARMUP :])]
            print(
                f"horovod: a step takes {statistics.median(steps):.6f} s, the median of {len(steps)}",
                file=sys.__stdout__,  # where horovodrun reads, whatever the script prints to
                flush=True,
            )


class Tuned:
    """An optimizer or a model whose steps are told of, and the settings of its own that it has.

    They change at the end of its steps, which ranks make in one order. A rank that had joined made fewer: so
    before its first reduction after a join each takes what ranks had agreed on when that ended.
    """

    def __init__(self, knobs: Sequence[OwnKnob] = ()) -> None:
        self.knobs = list(knobs)
        self._has = {own.knob.name: own.start for own in self.knobs}
        self._since: Decision | None = None

    def add(self, own: OwnKnob) -> None:
        """One more that may be tuned, or one again that is changed in another way; before the first step."""
        self.knobs = [known for known in self.knobs if known.knob.name != own.knob.name] + [own]
        self._has[own.knob.name] = own.start

    def before_reduction(self) -> None:
        """Cheap: what may be tuned in Python seldom is anything."""
        if self.knobs and self._since is not (agreed := belongings.own(Tuning).agreed()):
            self._since = agreed
            self.take(agreed.settings)

    def take(self, settings: Mapping[str, str]) -> None:
        for knob, start, apply in self.knobs:
            text = settings.get(knob.name, start)
            if text != self._has[knob.name]:
                apply(text)
                self._has[knob.name] = text


class _Leader:
    """Whose steps count: the first that makes one, then whoever makes TAKES_OVER in a row without it.

    Ranks make the same calls in one order, so all have one leader. When objects go does not matter, as that
    is the garbage collector's business, on each rank at another time.
    """

    TAKES_OVER = 10

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Tuned, int] = weakref.WeakKeyDictionary()
        self._made = itertools.count(1)
        self._leader = self._other = self._in_a_row = 0

    def is_it(self, caller: Tuned) -> bool:
        """Whether this step counts, which its maker may take over with."""
        number = self._number(caller)
        if number == self._leader:
            self._in_a_row = 0
            return True
        self._in_a_row = self._in_a_row + 1 if number == self._other else 1
        self._other = number
        if self._leader and self._in_a_row < self.TAKES_OVER:
            return False
        self._leader, self._in_a_row = number, 0
        return True

    def begin_afresh(self) -> None:
        """Ranks that had joined have not made the others' calls: from here on all make the same again."""
        self._leader = self._other = self._in_a_row = 0

    def _number(self, caller: Tuned) -> int:
        if caller not in self._numbers:
            self._numbers[caller] = next(self._made)
        return self._numbers[caller]


class Tuning:
    """Of one job on this rank (``belongings.own``)."""

    def __init__(self) -> None:
        wanted = os.environ.get(LAUNCH_STEPS, "")
        self._probe = _Probe(int(wanted)) if wanted else None
        self._is_on = is_on() and basics.member().world.size > 1
        self._leader = _Leader()
        self._tuner: Tuner | None = None
        self._director: Director | None = None
        self._watched: Watched | None = None
        self._joins = 0
        self._agreed = Decision("warming up" if self._is_on else "off", 1)
        self._told = 0  # outcomes
        self._searching_since: tuple[float, dict[str, int]] | None = None

    def agreed(self) -> Decision:
        """The ranks' common decision when they last joined, or were all told at once."""
        member = basics.member()
        if self._joins != member.joins:
            self._joins = member.joins
            if latest := _CoreAgreements(member.engine).latest():
                self._agreed = Decision.from_text(latest)
            self._leader.begin_afresh()
            if self._tuner is not None and self._is_on:
                self._tuner.begin_afresh()
        return self._agreed

    def step_ended(self, tuned: Tuned, workload: Callable[[], Workload]) -> None:
        """Ranks have made a step together, that of ``tuned``; of all that call this one is counted."""
        if self._probe is not None:
            return self._probe.step_ended()
        if self._agreed.phase == "off" and not self._agreed.settings:
            return
        agreed = self.agreed()
        if self._is_on and self._leader.is_it(tuned):
            if self._tuner is None:
                self._begin(basics.member(), workload())
            assert self._tuner is not None
            watched = self._watched
            self._tuner.step_ended(lambda: None if watched is None else watched.now(workload()))
            if self._director is not None:
                self._report(self._director)
        tuned.take((self._tuner.decision if self._tuner is not None else agreed).settings)

    def fix(self, settings: Mapping[str, str]) -> None:
        """Stop tuning, and take these settings. All ranks call it between the same two steps; rank 0's
        count.
        """
        member = basics.member()
        self.agreed()
        if self._tuner is not None:
            self._tuner.finish()
        self._is_on = False
        text = Decision("off", 1, settings).to_text() if member.world.rank == 0 else ""
        self._agreed = Decision.from_text(_CoreAgreements(member.engine).start(text).text())
        if self._tuner is not None:
            self._tuner.decision = self._agreed

    def data(self) -> dict[str, Any]:
        """See ``hvd.tuning``."""
        agreed = self.agreed()
        decision = self._tuner.decision if self._tuner is not None else agreed
        known = {"phase": decision.phase, "settings": dict(decision.settings)}
        if self._director is None:
            return known
        director = self._director
        return as_data(director.space, director.settings(), director.figures()) | known

    def _begin(self, member: Membership, workload: Workload) -> None:
        if member.world.rank == 0:
            self._watched = Watched(member.world)
            self._director = _director(member, workload, self._watched, self._say)
            member.before_leaving.append(self._say_how_far)
        self._tuner = Tuner(_CoreAgreements(member.engine), self._director)
        if self._joins:  # others have made steps before, and begun afresh after them
            self._tuner.begin_afresh()

    def _say(self, line: str) -> None:
        print(f"horovod: {line}", file=sys.stderr, flush=True)

    def _say_how_far(self) -> None:
        if self._is_on and self._director is not None and (so_far := self._director.how_far()):
            self._say(f"tuning ended early, {so_far}. Nothing is kept for the next job.")

    def _report(self, director: Director) -> None:
        """The table and the log, once for each search that has ended, or was spared."""
        if director.phase == "searching" and self._searching_since is None:
            self._searching_since = (time.perf_counter(), dict(basics.metrics(global_process_set)))
        if director.settled == self._told:
            return
        self._told = director.settled
        if director.result is not None:
            self._say("tuned\n" + table(director.space, director.result, director.figures()["steps"]))
            if director.plan.mode == "profile" and self._searching_since is not None:
                self._say(_shares(*self._searching_since))
        self._searching_since = None
        self._write_log(director)

    def _write_log(self, director: Director) -> None:
        if not (path := os.environ.get("HOROVOD_AUTOTUNE_LOG", "").strip()):
            return
        trials = [
            {
                "last_step": trial.last_step,
                "settings": dict(trial.settings),
                "steps": trial.steps,
                "is_incumbent": trial.is_incumbent,
            }
            for trial in director.trials
        ]
        # The phase and the settings are those from the next step on.
        now = {"phase": director.phase, "settings": director.settings(), "trials": trials}
        try:
            Path(path).write_text(json.dumps({**self.data(), **now}, indent=1) + "\n")
        except OSError as error:
            self._say(f"HOROVOD_AUTOTUNE_LOG={path}: {error}")


def nothing() -> dict[str, Any]:
    """The result of ``tuning`` if nothing is tuned."""
    return {"phase": "off", "settings": {}}


def step_ended(tuned: Tuned, workload: Callable[[], Workload]) -> None:
    """Of the job that the caller is in; see Tuning."""
    belongings.own(Tuning).step_ended(tuned, workload)


def tuning() -> dict[str, Any]:
    """The state and results of tuning; see docs/tuning.md. Every rank may ask at any time.

    Returns:
        phase ("off", "warming up", "searching", "watching") and settings (by variable, the text that counts
        now). On rank 0, once a step was made, also began_with (the search), defaults, gain (ratio and the
        ends of its interval, or None), steps (that trials of this job took), steps_allowed, why_it_ended,
        duels, and is_reused: these figures are those of an earlier search, as nothing was tried.

    ValueError before init().
    """
    basics.running()
    return belongings.own(Tuning).data()


def _director(
    member: Membership, workload: Workload, watched: Watched, say: Callable[[str], None]
) -> Director:
    steps = _read("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE")
    plan = Plan(
        warmup_steps=_read("HOROVOD_AUTOTUNE_WARMUP_SAMPLES") * (steps + 1),
        steps_per_block=steps,
        most_steps=_read("HOROVOD_AUTOTUNE_MAX_STEPS"),
        mode=_read("HOROVOD_AUTOTUNE_MODE"),
        reuse=_read("HOROVOD_AUTOTUNE_REUSE"),
    )
    space = space_of(member.world, member.settings, workload)
    return Director(space, watched.now(workload), plan, say, _cache(say))


def _cache(say: Callable[[str], None]) -> Cache | None:
    try:
        return Cache(Cache.usual_folder(os.environ), say)
    except RuntimeError as error:  # a user without a home
        say(f"what is tuned is not kept for the next job, as HOROVOD_AUTOTUNE_CACHE names no folder: {error}")
        return None


def _read(variable: str) -> Any:
    return BY_VARIABLE[variable].read(os.environ)


def _shares(since: float, before: Mapping[str, int]) -> str:
    """Of all that ranks did since then."""
    now = basics.metrics(global_process_set)
    counted = {name: now[name] - count for name, count in before.items()}
    return str(shares_of(time.perf_counter() - since, counted))
