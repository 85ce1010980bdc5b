"""One job's tuning: counts steps on every rank, and decides on rank 0.

Every rank reports the end of every step to its Tuner. At steps that all ranks know, they *agree*: an
operation of the core carries rank 0's decision to all of them, between the same two operations of each. They
submit it at the end of one step and read it at the end of the next, so no rank waits. After the search they
agree seldom.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from horovod.tune import errors
from horovod.tune.cache import Cache, Key, Stored
from horovod.tune.knobs import Configuration, Space
from horovod.tune.paired import Gain
from horovod.tune.report import gain_in, overall, so_far, taken
from horovod.tune.scores import Shift, seconds_of
from horovod.tune.search import NO_NEIGHBOUR, Duel, Limits, Result, Search, look

__all__ = ["PHASES", "Agreements", "Decision", "Director", "Plan", "Trained", "Trial", "Tuner"]

# The phases of a job: steps that do not count; trials; observation of the result; no tuning.
PHASES = ("warming up", "searching", "watching", "off")
AGAIN = 10  # steps until ranks agree again, if rank 0 could not decide
LINES = 4  # most progress lines of a search
WATCH = 100  # steps from one agreement to the next, when nothing is tried


@dataclass(frozen=True)
class Decision:
    """The settings from now on, and the number of steps until the next decision.

    Lines ``HOROVOD_...=text`` are settings. The core reads them too, and applies its own. The other lines are
    for tuners.
    """

    phase: str
    next_in: int
    settings: Mapping[str, str] = field(default_factory=dict)

    def to_text(self) -> str:
        lines = [f"phase={self.phase}", f"next_in={self.next_in}"]
        return "\n".join([*lines, *(f"{name}={text}" for name, text in self.settings.items())])

    @staticmethod
    def from_text(text: str) -> Decision:
        """Parse what ``to_text`` returns. ValueError for other text."""
        pairs = dict(line.split("=", 1) for line in text.split("\n") if "=" in line)
        settings = {name: value for name, value in pairs.items() if name.startswith("HOROVOD_")}
        try:
            phase, next_in = pairs["phase"], int(pairs["next_in"])
        except (KeyError, ValueError):
            raise errors.no_decision(got=text) from None
        if phase not in PHASES or next_in < 1:
            raise errors.no_decision(got=text)
        return Decision(phase, next_in, settings)


class Agreements(Protocol):
    """The interface through which the ranks of a job agree."""

    def start(self, text: str) -> Callable[[], str]:
        """Start an agreement. Every rank calls it at the same step; only rank 0's text counts.

        The returned function waits until all ranks have started it, and returns rank 0's text.
        """

    def latest(self) -> str:
        """Return the ranks' last agreement, even if this rank had joined; empty if there is none."""


@dataclass(frozen=True)
class Plan:
    """How much a job tries, and how it scores."""

    warmup_steps: int = 15
    steps_per_block: int = 4  # counted steps; one more before, in which settings change, does not count
    most_steps: int = 400
    mode: str = "filter"
    reuse: str = "reuse"

    def limits(self) -> Limits:
        return Limits(blocks=max(0, self.most_steps - self.warmup_steps) // (self.steps_per_block + 1))

    def why_nothing_is_tried(self) -> str:
        """Return the reason if so few steps are too few to win a comparison; else ""."""
        fewest = 2 * Limits().fewest_pairs
        if self.limits().blocks >= fewest:
            return ""
        return (
            f"{self.most_steps} steps leave nothing to try: {self.warmup_steps} of warm-up come first, and "
            f"the shortest comparison takes {fewest * (self.steps_per_block + 1)}"
        )


@dataclass(frozen=True)
class Trained:
    """The training: a model's seconds of a step by configuration, the key of its results, and its size."""

    predicted: Callable[[Configuration], float]
    key: Key | None = None
    tensors: tuple[int, ...] = ()  # numbers of elements


@dataclass(frozen=True)
class Trial:
    """A block of steps that were run with one configuration."""

    last_step: int
    settings: Configuration
    steps: tuple[float, ...]
    seconds: float
    is_incumbent: bool = True  # the configuration with which the job runs, compared to the others


class Tuner:
    """A rank's part. ``step_ended`` is called at the end of every step that ranks made together."""

    def __init__(
        self,
        agreements: Agreements,
        director: Director | None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``director``: on rank 0."""
        self._agreements, self._director, self._clock = agreements, director, clock
        self._steps = 0
        self._due = 1
        self._under_way: Callable[[], str] | None = None
        self._last: float | None = None
        self.decision = Decision("warming up", 1)

    def step_ended(self, trained: Callable[[], Trained | None] = lambda: None) -> None:
        """Count a step. ``trained`` is called on rank 0 before a decision; None means unchanged."""
        now = self._clock()
        self._steps += 1
        if self._director is not None and self._last is not None:
            self._director.add_step(now - self._last)
        self._last = now
        if self._under_way is not None:
            text_of_all, self._under_way = self._under_way, None
            if text := text_of_all():
                self._take(Decision.from_text(text))
            else:  # rank 0 has joined, and decides nothing
                self._due = self._steps + AGAIN
        elif self._steps >= self._due:
            text = "" if self._director is None else self._director.decide(self._steps, trained()).to_text()
            self._under_way = self._agreements.start(text)

    def begin_afresh(self) -> None:
        """Take the latest decision, and agree again soon.

        Ranks that had joined have counted fewer steps. A search waits for a whole block; otherwise at most
        AGAIN steps pass, so that short epochs suffice.
        """
        self.finish()
        if latest := self._agreements.latest():
            self._take(Decision.from_text(latest))
        self._last = None  # the next step begins at an unknown time
        most = self.decision.next_in if self.decision.phase == "searching" else AGAIN
        self._due = self._steps + 1 + min(self.decision.next_in, most)

    def finish(self) -> None:
        """Wait for the agreement under way, on all ranks at the same step."""
        if self._under_way is not None:
            self._under_way()
            self._under_way = None

    def _take(self, decision: Decision) -> None:
        self.decision = decision
        self._due = self._steps + decision.next_in
        self._last = self._clock()
        if self._director is not None:
            self._director.taken()


class Director:
    """Makes rank 0's decisions from the times of steps.

    Attributes:
        space: of the current search, or the last one. Its start is the configuration with which that began.
        settled: how often settings were found, or taken from an earlier job.
        trials: of that search.
        result: the outcome; None before, or if nothing was tried.
    """

    def __init__(
        self,
        space: Space,
        trained: Trained,
        plan: Plan = Plan(),
        tell: Callable[[str], None] = lambda line: None,
        cache: Cache | None = None,
    ) -> None:
        self.space, self.plan, self._given = space, plan, space
        self._trained, self._tell, self._cache = trained, tell, cache
        self._current: dict[str, str] = space.start
        self._search: Search | None = None
        self.phase = "warming up"
        self._steps: list[float] = []  # since the last decision was taken
        self._shift = Shift()
        self._is_first = True  # first decision about the current training
        self._warm_at = 0  # the step at which warming up ends
        self._begun: dict[Key | None, Stored | None] = {}  # by training, its result so far
        self._in_force: Stored | None = None  # the result in use, of this job or an earlier one
        self.trials: list[Trial] = []
        self.result: Result | None = None
        self._so_far: Result | None = None  # of the current search
        self._told = 0  # number of progress lines
        self.retunings = self.settled = 0

    def add_step(self, seconds: float) -> None:
        self._steps.append(seconds)

    def taken(self) -> None:
        """Note that all ranks have the decision, which counts for the steps from here on."""
        self._steps = []

    def decide(self, step: int, trained: Trained | None = None) -> Decision:
        """Return the decision after ``step`` steps. ``trained``: the current training; None: unchanged."""
        if trained is not None and self._is_new(trained):
            return self._begin_with(trained, step)
        if self.phase == "warming up":
            return self._begin(step) if step >= self._warm_at else self._decision(self._warm_at - step)
        if self.phase == "searching":
            if not self._steps:  # no complete step was measured: repeat the block
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

    def _is_new(self, trained: Trained) -> bool:
        """Return whether the training has changed so that tuning begins again.

        A running search ignores trainings that have begun before, so that tuning ends even if a script
        freezes and unfreezes parameters in turns.
        """
        if trained.key == self._trained.key:
            return False
        return self.phase == "watching" or trained.key not in self._begun

    def _begin_with(self, trained: Trained, step: int) -> Decision:
        if self._search is not None and self._so_far is not None:
            self._current = dict(self._so_far.best)  # not the configuration that was being tried
        self._trained, self._search, self.phase = trained, None, "warming up"
        self._shift, self.result, self._in_force = Shift(), None, None
        self._is_first, self._warm_at = True, step
        if self._begun.get(trained.key) is None:
            self.retunings += 1
            self._tell(f"tuning again at step {step}: other parameters are trained than before")
        return self._begin(step)

    def _begin(self, step: int) -> Decision:
        why_not = self.plan.why_nothing_is_tried()
        if self._is_first:
            self._is_first = False
            if (found := self._begun.get(self._trained.key)) is not None:
                return self._take(found)
            self._begun[self._trained.key] = None
            if (stored := self._found()) is not None:
                self._current, self._in_force = dict(stored.settings), stored
                if self.plan.reuse == "reuse" and self._is_enough(stored):
                    self._tell(taken(self._given.start, stored.settings, stored.figures))
                    return self._take(stored)
            self._tell(
                f"tuning: {why_not}; training goes on with what it has" if why_not else
                f"tuning {len(self.space.knobs)} settings, in {self.plan.most_steps} steps at most; "
                "training goes on meanwhile"
            )  # fmt: skip
            if not why_not and self.plan.warmup_steps > 1:
                self._warm_at = step + self.plan.warmup_steps
                return self._decision(self.plan.warmup_steps)
        self.space = Space(self._given.knobs, self._current)
        self.trials, self._told, self.result = [], 0, None
        if why_not:
            self.phase = "watching"
            self.settled += 1
            return self._decision(WATCH)
        self.phase = "searching"
        self._so_far = Result(self.space.start)
        self._search = look(self.space, self._trained.predicted, self.plan.limits(), self._so_far)
        return self._go_on(None)

    def _take(self, found: Stored) -> Decision:
        """Use a result of an earlier job, or of this one for the same parameters."""
        self._current, self._in_force = dict(found.settings), found
        self.phase, self.trials, self.result = "watching", [], None
        self.settled += 1
        return self._decision(WATCH)

    def _found(self) -> Stored | None:
        key = self._trained.key
        if self._cache is None or key is None or self.plan.reuse == "off":
            return None
        stored = self._cache.find(key)
        if stored is None:
            return None
        if not self._given.is_in(stored.settings):
            self._tell("tuning: what was found before has other settings than this job, and is not taken")
            return None
        return stored

    def _is_enough(self, stored: Stored) -> bool:
        """Return whether as many steps were tried as are allowed now."""
        return _is_over(stored.figures) or _steps_allowed(stored.figures) >= self.plan.most_steps

    def _go_on(self, seconds: float | None) -> Decision:
        assert self._search is not None
        try:
            self._current = self._search.send(seconds)  # type: ignore[arg-type]  # None starts it
        except StopIteration as over:
            return self._end(over.value)
        self._tell_how_far()
        return self._decision(self.plan.steps_per_block)

    def _tell_how_far(self) -> None:
        """Report progress after each of LINES parts of the allowed steps."""
        assert self._so_far is not None
        steps = self._steps_of_trials()
        if steps * LINES < (self._told + 1) * self.plan.most_steps:
            return
        self._told = steps * LINES // self.plan.most_steps
        self._tell(f"tuning: {steps} of at most {self.plan.most_steps} steps; {so_far(self._so_far)}")

    def _end(self, result: Result) -> Decision:
        self.result, self._search, self.phase = result, None, "watching"
        self._current = dict(result.best)
        self._shift = Shift()
        self.settled += 1
        key = self._trained.key
        if key is not None:
            found = self._stored(key, result)
            self._begun[key] = self._in_force = found
            if self._cache is not None and self.plan.reuse != "off" and result.blocks > 0:
                self._cache.keep(found)
        return self._decision(WATCH)

    def _stored(self, key: Key, result: Result) -> Stored:
        """Return the result to store.

        If the search only confirmed an earlier result, the figures of that one are kept.
        """
        sizes, before = self._trained.tensors, self._in_force
        figures = {"date": time.strftime("%Y-%m-%d"), "parameters": sum(sizes), "tensors": len(sizes)}
        figures |= self.figures()
        is_confirmed = before is not None and before.key == key and before.settings == self.space.start
        if before is None or not is_confirmed or any(duel.is_won for duel in result.duels):
            return Stored(key, dict(result.best), figures)
        allowed = max(_steps_allowed(before.figures), self.plan.most_steps)
        why = NO_NEIGHBOUR if _is_over(before.figures) else result.why
        confirmed = {**before.figures, "steps_allowed": allowed, "why_it_ended": why}
        return Stored(key, dict(result.best), confirmed)

    def _watch(self, step: int) -> Decision:
        shifted = [self._shift.add(seconds) for seconds in self._steps]
        if not any(shifted) or self.plan.why_nothing_is_tried():
            return self._decision(WATCH)
        self.retunings += 1
        self._tell(f"tuning again at step {step}: steps take another time than when it ended")
        self.phase, self._warm_at = "warming up", step
        return self._decision(1)

    def _decision(self, next_in: int) -> Decision:
        return Decision(self.phase, next_in, self._current)

    def figures(self) -> dict[str, Any]:
        """Return the figures that decided: of the settings that were taken, and of all duels.

        If an earlier search found the settings, they are that one's; ``steps`` are those of this job's
        trials.
        """
        duels = self.result.duels if self.result is not None else []
        found: Mapping[str, Any] = {
            "steps_allowed": self.plan.most_steps,
            "why_it_ended": self.result.why if self.result is not None else "",
            "gain": _as_numbers(overall(duels)),
            "duels": [_as_figures(duel) for duel in duels],
        }
        before = self._in_force if self.result is None and self._search is None else None
        if before is not None:
            found = before.figures
        began = found.get("began_with")
        is_known = isinstance(began, dict) and set(began) == set(self.space.start)
        return {
            "began_with": began if is_known else dict(self.space.start),
            "steps_allowed": _steps_allowed(found),
            "why_it_ended": str(found.get("why_it_ended", "")),
            "gain": gain_in(found),
            "duels": found.get("duels", []),
            "steps": self._steps_of_trials(),
            "is_reused": before is not None,
        }

    def how_far(self) -> str:
        """Return the progress of a running search, or ""."""
        if self.phase == "watching":
            return ""
        most = self.plan.most_steps
        if self.phase == "warming up" or self._so_far is None:
            return f"before any of {most} steps was tried"
        return f"after {self._steps_of_trials()} of at most {most} steps; {so_far(self._so_far)}"

    def _steps_of_trials(self) -> int:
        return sum(len(trial.steps) + 1 for trial in self.trials)


def _steps_allowed(figures: Mapping[str, Any]) -> int:
    """Return the number in a file, which may have any content."""
    allowed = figures.get("steps_allowed")
    return allowed if type(allowed) is int else 0


def _is_over(figures: Mapping[str, Any]) -> bool:
    return bool(figures.get("why_it_ended") == NO_NEIGHBOUR)


def _as_numbers(gain: Gain | None) -> list[float] | None:
    """Return the ratio and the ends of its interval; None if nothing was faster."""
    return None if gain is None else [round(value, 4) for value in (gain.ratio, gain.low, gain.high)]


def _as_figures(duel: Duel) -> dict[str, Any]:
    before, after, gain = duel.incumbent, duel.challenger, duel.gain
    return {
        "changed": {name: [before[name], text] for name, text in after.items() if text != before[name]},
        "gain": round(gain.ratio, 4),
        "interval": [round(gain.low, 4), round(min(gain.high, 1e9), 4)],
        "pairs": gain.pairs,
        "won": duel.is_won,
    }
