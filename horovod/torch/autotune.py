"""Connects horovod.tune to this rank's job: what may be tuned, and when each step ends.

A DistributedOptimizer and a model under ``ddp.compress`` report the end of each step. The first that makes
one counts the steps. Others, such as the second optimizer of a GAN, take the settings that are found. Without
HOROVOD_AUTOTUNE=1 all of this is off.
"""

from __future__ import annotations

import functools
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
from horovod.tune.report import as_data, table
from horovod.tune.scores import shares_of
from horovod.tune.tuner import Decision, Director, Plan, Tuner

_OPERATION = "horovod.tune"
LAUNCH_STEPS = "HOROVOD_TUNE_LAUNCH_STEPS"


def is_on() -> bool:
    """Return whether tuning is on, as the ranks agreed when they met."""
    return basics.member().tuning["HOROVOD_AUTOTUNE"] == "1"


class _CoreAgreements:
    """Agreements by an operation of the core, which applies its settings in the order of operations."""

    def __init__(self, engine: native.Engine) -> None:
        self._engine = engine

    def start(self, text: str) -> Callable[[], str]:
        """Start an agreement; an error is raised when its text is read.

        Other ranks may have left, and only a rank that makes another step needs the answer.
        """
        engine = self._engine
        try:
            handle = engine.tune(_OPERATION, text)
        except HorovodInternalError as error:
            return functools.partial(_raise, error)
        return lambda: np.from_dlpack(waiting.wait(engine, handle).buffer()).tobytes().decode()

    def latest(self) -> str:
        return self._engine.tuned


def _raise(error: Exception) -> str:
    raise error


class _Probe:
    """Measures a step for ``horovodrun --tune-launch``, which then ends the job."""

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
                file=sys.__stdout__,  # for horovodrun, even if the script redirects sys.stdout
                flush=True,
            )


class Tuned:
    """An optimizer or a model that reports its steps, and its own settings that may be tuned.

    The settings change at the end of its steps, which all ranks make in the same order. A rank that had
    joined made fewer steps. So before its first reduction after a join, each rank takes the settings that
    were agreed on when the join ended.
    """

    def __init__(self, knobs: Sequence[OwnKnob] = ()) -> None:
        self.knobs = list(knobs)
        self._has = {own.knob.name: own.start for own in self.knobs}
        self._since: Decision | None = None

    def add(self, own: OwnKnob) -> None:
        """Add a knob, or replace the knob of that name, before the first step."""
        self.knobs = [known for known in self.knobs if known.knob.name != own.knob.name] + [own]
        self._has[own.knob.name] = own.start

    def before_reduction(self) -> None:
        """Take the agreed settings if they have changed. Cheap, as knobs in Python are rare."""
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
    """Chooses whose steps count: the first caller that makes one, until another makes TAKES_OVER in a row.

    Ranks make the same calls in one order, so all have the same leader. It does not depend on the garbage
    collector, which runs at another time on each rank.
    """

    TAKES_OVER = 10

    def __init__(self) -> None:
        self._numbers: weakref.WeakKeyDictionary[Tuned, int] = weakref.WeakKeyDictionary()
        self._made = itertools.count(1)
        self._leader = self._other = self._in_a_row = 0

    def is_it(self, caller: Tuned) -> bool:
        """Return whether this step counts. The call may make ``caller`` the leader."""
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
        """Forget the leader. Ranks that had joined missed calls; from here on all make the same."""
        self._leader = self._other = self._in_a_row = 0

    def _number(self, caller: Tuned) -> int:
        if caller not in self._numbers:
            self._numbers[caller] = next(self._made)
        return self._numbers[caller]


class Tuning:
    """The tuning of one job on this rank (``belongings.own``)."""

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
        self._told = 0  # reported outcomes
        self._searching_since: tuple[float, dict[str, int]] | None = None

    def agreed(self) -> Decision:
        """Return the common decision of the last join, or of ``fix``."""
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
        """Count the step that all ranks have made with ``tuned``, if ``tuned`` is the leader."""
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
        """Stop tuning, and use rank 0's ``settings``. All ranks call it between the same two steps."""
        member = basics.member()
        self.agreed()
        if self._tuner is not None:
            self._tuner.finish()
        self._is_on = False
        text = Decision("off", 1, settings).to_text() if member.world.rank == 0 else ""
        self._agreed = Decision.from_text(_CoreAgreements(member.engine).start(text)())
        if self._tuner is not None:
            self._tuner.decision = self._agreed

    def data(self) -> dict[str, Any]:
        """Return the result of ``hvd.tuning``."""
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
        if self._joins:  # the other ranks began afresh after steps before the join
            self._tuner.begin_afresh()

    def _say(self, line: str) -> None:
        print(f"horovod: {line}", file=sys.stderr, flush=True)

    def _say_how_far(self) -> None:
        if self._is_on and self._director is not None and (so_far := self._director.how_far()):
            self._say(f"tuning ended early, {so_far}. Nothing is kept for the next job.")

    def _report(self, director: Director) -> None:
        """Write the table and the log once for each search that was completed or skipped."""
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
        # Phase and settings are those of the next step.
        now = {"phase": director.phase, "settings": director.settings(), "trials": trials}
        try:
            Path(path).write_text(json.dumps({**self.data(), **now}, indent=1) + "\n")
        except OSError as error:
            self._say(f"HOROVOD_AUTOTUNE_LOG={path}: {error}")


def nothing() -> dict[str, Any]:
    """Return the result of ``tuning`` if nothing is tuned."""
    return {"phase": "off", "settings": {}}


def tuning() -> dict[str, Any]:
    """Return the state and results of tuning; see docs/tuning.md. Any rank may call it at any time.

    Returns:
        phase ("off", "warming up", "searching", "watching") and settings (variable -> the text in use). On
        rank 0, once a step was made, also began_with (the search), defaults, gain (ratio and the ends of its
        interval, or None), steps (that trials of this job took), steps_allowed, why_it_ended, duels, and
        is_reused (nothing was tried, and these figures are those of an earlier search).

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
    except RuntimeError as error:  # a user without a home directory
        say(f"what is tuned is not kept for the next job, as HOROVOD_AUTOTUNE_CACHE names no folder: {error}")
        return None


def _read(variable: str) -> Any:
    return BY_VARIABLE[variable].read(os.environ)


def _shares(since: float, before: Mapping[str, int]) -> str:
    """Return the shares of all that ranks did since ``since``."""
    now = basics.metrics(global_process_set)
    counted = {name: now[name] - count for name, count in before.items()}
    return str(shares_of(time.perf_counter() - since, counted))
