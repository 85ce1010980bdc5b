"""One job's tuning: counts steps on every rank, and on rank 0 decides.

Every rank has a Tuner, and tells it of the end of every step. At steps that all of them know, ranks
*agree*: an operation of the core that carries rank 0's decision to all of them, between the same two
operations of each. They hand it in at the end of one step and take it at the end of the next, so nobody
waits. Where the search is over they agree seldom.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from horovod.tune.cache import Cache, Key, Stored
from horovod.tune.decision import Decision
from horovod.tune.knobs import Configuration, Space
from horovod.tune.report import overall, so_far
from horovod.tune.scores import Shift, seconds_of
from horovod.tune.search import NO_NEIGHBOUR, Duel, Limits, Result, Search, look

__all__ = ["Agreement", "Agreements", "Director", "Plan", "Trial", "Tuner"]

AGAIN = 10  # steps until ranks ask again, where rank 0 could not decide
LINES = 4  # that say how far a search is, at most
WATCH = 100  # steps from one agreement to the next, when nothing is tried


class Agreement(Protocol):
    """One that is under way."""

    def text(self) -> str:
        """Rank 0's, when all ranks have asked."""


class Agreements(Protocol):
    """How ranks of a job agree."""

    def start(self, text: str) -> Agreement:
        """Of rank 0's text. Every rank calls it at the same step; only rank 0's text counts."""

    def latest(self) -> str:
        """What ranks have agreed on last, also without this one, as it had joined; empty: nothing yet."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """How much a job tries, and how it scores."""

    warmup_steps: int = 15
    steps_per_block: int = 4  # that count; the one before, in which settings change, does not
    most_steps: int = 400
    mode: str = "filter"
    reuse: str = "reuse"

    def limits(self) -> Limits:
        blocks = max(0, self.most_steps - self.warmup_steps) // (self.steps_per_block + 1)
        return Limits(blocks=blocks)


@dataclasses.dataclass(frozen=True)
class Trial:
    """A block of steps that were run with one configuration."""

    last_step: int
    settings: Configuration
    steps: tuple[float, ...]
    seconds: float
    is_incumbent: bool = True  # what the job runs with, beside which others are tried


class Tuner:
    """A rank's part. ``step_ended`` is called at the end of every step that ranks made together."""

    def __init__(
        self,
        agreements: Agreements,
        director: Director | None,
        apply: Callable[[Mapping[str, str]], None] = lambda settings: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``director``: on rank 0. ``apply`` takes settings that are changed in Python, on every rank."""
        self._agreements, self._director, self._apply, self._clock = agreements, director, apply, clock
        self._steps = 0
        self._due = 1
        self._under_way: Agreement | None = None
        self._last: float | None = None
        self.decision = Decision("warming up", 1)

    def step_ended(self) -> None:
        now = self._clock()
        self._steps += 1
        if self._director is not None and self._last is not None:
            self._director.add_step(now - self._last)
        self._last = now
        if self._under_way is not None:
            agreement, self._under_way = self._under_way, None
            if text := agreement.text():
                self._take(Decision.from_text(text))
            else:  # rank 0 has joined, and decides nothing
                self._due = self._steps + AGAIN
        elif self._steps >= self._due:
            text = "" if self._director is None else self._director.decide(self._steps).to_text()
            self._under_way = self._agreements.start(text)

    def begin_afresh(self) -> None:
        """Some ranks had joined, and have counted fewer steps: all take the latest, and agree after a whole
        block of it.
        """
        self._finish()
        if latest := self._agreements.latest():
            self._take(Decision.from_text(latest))
        self._last = None  # the next step begins somewhere in between
        self._due = self._steps + self.decision.next_in + 1

    def stop(self) -> None:
        """Nothing more is decided; what is under way is waited for, on all ranks at the same step."""
        self._finish()
        self.decision = Decision("off", 1, self.decision.settings)

    def _finish(self) -> None:
        if self._under_way is not None:
            self._under_way.text()
            self._under_way = None

    def _take(self, decision: Decision) -> None:
        if decision.settings != self.decision.settings:
            self._apply(decision.settings)
        self.decision = decision
        self._due = self._steps + decision.next_in
        self._last = self._clock()
        if self._director is not None:
            self._director.taken()


class Director:
    """Rank 0's: from the times of steps to decisions."""

    def __init__(
        self,
        space: Space,
        predicted: Callable[[Configuration], float],
        plan: Plan = Plan(),
        tell: Callable[[str], None] = lambda line: None,
        cache: Cache | None = None,
        key: Key | None = None,
    ) -> None:
        self.space, self.plan = space, plan
        self._predicted, self._tell, self._cache, self._key = predicted, tell, cache, key
        self._current: dict[str, str] = space.start
        self._search: Search | None = None
        self._phase = "warming up"
        self._steps: list[float] = []  # since the last decision was taken
        self._shift = Shift()
        self._is_first = True
        self.trials: list[Trial] = []
        self.result: Result | None = None
        self._so_far: Result | None = None  # of the search that goes on
        self._told = 0  # of LINES
        self.retunings = 0

    @property
    def phase(self) -> str:
        return self._phase

    def add_step(self, seconds: float) -> None:
        self._steps.append(seconds)

    def taken(self) -> None:
        """All ranks have the decision: from here on steps are its."""
        self._steps = []

    def decide(self, step: int) -> Decision:
        if self._phase == "warming up":
            return self._begin(step)
        if self._phase == "searching":
            if not self._steps:  # none was measured whole: the block once more
                return self._decision(self.plan.steps_per_block)
            steps = tuple(self._steps)
            assert self._so_far is not None
            is_incumbent = self._current == self._so_far.best
            trial = Trial(step, self._current, steps, seconds_of(steps, self.plan.mode), is_incumbent)
            self.trials.append(trial)
            return self._go_on(trial.seconds)
        return self._watch(step)

    def settings(self) -> dict[str, str]:
        return dict(self._current)

    def _begin(self, step: int) -> Decision:
        if self._is_first:
            self._is_first = False
            if (stored := self._found()) is not None:
                self._current = dict(stored.settings)
                if self.plan.reuse == "reuse" and self._is_enough(stored):
                    self._phase = "watching"
                    self._tell("tuning: took what was found before; nothing is tried")
                    return self._decision(WATCH)
            self._tell(
                f"tuning {len(self.space.knobs)} settings, in {self.plan.most_steps} steps at most; "
                "training goes on meanwhile"
            )
            if self.plan.warmup_steps > 1:
                return self._decision(self.plan.warmup_steps)
        self._phase, self.trials, self._told = "searching", [], 0
        start = Space(self.space.knobs, self._current)
        self._so_far = Result(start.start)
        self._search = look(start, self._predicted, self.plan.limits(), self._so_far)
        return self._go_on(None)

    def _found(self) -> Stored | None:
        if self._cache is None or self._key is None or self.plan.reuse == "off":
            return None
        stored = self._cache.find(self._key)
        if stored is None:
            return None
        if not self.space.is_in(stored.settings):
            self._tell("tuning: what was found before has other settings than this job, and is not taken")
            return None
        return stored

    def _is_enough(self, stored: Stored) -> bool:
        """Whether as much was tried as may be now."""
        allowed = stored.figures.get("steps_allowed")
        is_over = stored.figures.get("why_it_ended") == NO_NEIGHBOUR
        return is_over or (isinstance(allowed, int) and allowed >= self.plan.most_steps)

    def _go_on(self, seconds: float | None) -> Decision:
        assert self._search is not None
        try:
            self._current = self._search.send(seconds)  # type: ignore[arg-type]  # None starts it
        except StopIteration as over:
            return self._end(over.value)
        self._tell_how_far()
        return self._decision(self.plan.steps_per_block)

    def _tell_how_far(self) -> None:
        """When another part of the steps that may be tried is over."""
        assert self._so_far is not None
        steps = self._steps_of_trials()
        if steps * LINES < (self._told + 1) * self.plan.most_steps:
            return
        self._told = steps * LINES // self.plan.most_steps
        self._tell(f"tuning: {steps} of at most {self.plan.most_steps} steps; {so_far(self._so_far)}")

    def _end(self, result: Result) -> Decision:
        self.result, self._search, self._phase = result, None, "watching"
        self._current = dict(result.best)
        self._shift = Shift()
        may_keep = self.plan.reuse != "off" and result.blocks > 0
        if self._cache is not None and self._key is not None and may_keep:
            self._cache.keep(Stored(self._key, dict(result.best), self.figures()))
        return self._decision(WATCH)

    def _watch(self, step: int) -> Decision:
        shifted = [self._shift.add(seconds) for seconds in self._steps]
        if not any(shifted):
            return self._decision(WATCH)
        self.retunings += 1
        self._tell(f"tuning again at step {step}: steps take another time than when it ended")
        self._phase = "warming up"
        return self._decision(1)

    def _decision(self, next_in: int) -> Decision:
        return Decision(self._phase, next_in, self._current)

    def figures(self) -> dict[str, Any]:
        """What decided: of the settings that were taken, and of all duels."""
        duels = self.result.duels if self.result is not None else []
        return {
            "steps": self._steps_of_trials(),
            "steps_allowed": self.plan.most_steps,
            "why_it_ended": self.result.why if self.result is not None else "",
            "gain": _gain_of(self.result),
            "duels": [_as_figures(duel) for duel in duels],
        }

    def _steps_of_trials(self) -> int:
        return sum(len(trial.steps) + 1 for trial in self.trials)


def _gain_of(result: Result | None) -> list[float] | None:
    """In all: the ratio and the ends of its interval; None where nothing was faster."""
    gain = overall(result.duels) if result is not None else None
    return None if gain is None else [round(value, 4) for value in (gain.ratio, gain.low, gain.high)]


def _as_figures(duel: Duel) -> dict[str, Any]:
    changed = {
        name: [duel.incumbent[name], text]
        for name, text in duel.challenger.items()
        if text != duel.incumbent[name]
    }
    gain = duel.gain
    return {
        "changed": changed,
        "gain": round(gain.ratio, 4),
        "interval": [round(gain.low, 4), round(min(gain.high, 1e9), 4)],
        "pairs": gain.pairs,
        "won": duel.is_won,
    }
