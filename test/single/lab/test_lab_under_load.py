"""Reports on simulated labs on a busy machine, on which a busy loop starts and stops.

The true gain of compression is an input: a report must find it, and must not call noise a gain.
benchmarks/lab_under_load.py does the same with real labs.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import pytest

from horovod.lab.load import DISTURBED, Load
from horovod.lab.plan import in_rounds
from horovod.lab.report.comparison import Conclusion, pairs
from horovod.lab.results import table
from horovod.lab.runs import Epoch, Plan, Run

LABS, FEW = 1000, 300  # LABS for tests of rare events
COMPRESSIONS = {"none": 4000, "bit16": 2000, "bit8": 1000}  # compression -> bytes sent
COMPUTING, WAITING = 6.0, 4.0  # seconds of a run that nothing disturbs
CHANCE = 0.01  # of these: a standard deviation
SLOWED, TAKEN = 2.0, 0.4  # by a loop on one of two cores: all wait for its rank; what it takes of both cores


class Machine:
    """A machine with a clock and random bursts of load."""

    def __init__(self, seed: int, mean_quiet: float, mean_burst: float) -> None:
        self.dice, self.now, self.is_busy = random.Random(seed), 0.0, False
        self._lengths = {False: mean_quiet, True: mean_burst}
        self._until = self._change()

    def _change(self) -> float:
        return self.now + self.dice.expovariate(1 / self._lengths[self.is_busy])

    def work(self, seconds: float) -> tuple[float, float]:
        """The time that this work takes, and the loop's share of that time."""
        began, busy = self.now, 0.0
        while seconds > 0:
            pace = SLOWED if self.is_busy else 1.0
            spent = min(seconds * pace, self._until - self.now)
            self.now += spent
            busy += spent * self.is_busy
            seconds -= spent / pace
            if seconds > 0:
                self.is_busy = not self.is_busy
                self._until = self._change()
        return self.now - began, busy / (self.now - began)


@dataclass(frozen=True)
class Effect:
    """The conclusion on bit8, from the seconds of a run."""

    computing: float = 0.0
    waiting: float = 0.0


def run(machine: Machine, plan: Plan, effect: Effect) -> Run:
    is_affected = plan.compression == "bit8"
    computing = COMPUTING + effect.computing * is_affected
    waiting = WAITING + effect.waiting * is_affected
    asked = [part * machine.dice.gauss(1, CHANCE) for part in (computing, waiting)]
    seconds, busy = machine.work(sum(asked))
    machine.work(machine.dice.uniform(2, 6))  # until the next one starts
    return Run(
        plan=plan,
        folder=Path(plan.compression),
        dataset="d",
        step_seconds=(seconds,),
        step_waits=(seconds * asked[1] / sum(asked),),
        step_losses=(1.0,),
        epochs=(Epoch(1, seconds, 1.0, 1.0, 0.9),),
        bytes_sent=COMPRESSIONS[plan.compression],
        checksum="c",
        identical=True,
        load=Load(0.0, TAKEN * busy, 0.0),
    )


def labs(
    effect: Effect, seeds: int = 3, quiet: float = 60.0, burst: float = 20.0, count: int = FEW
) -> list[list[Run]]:
    plans = [Plan("t.py", 2, name, seed, 1) for name in COMPRESSIONS for seed in range(1, seeds + 1)]
    found = []
    for number in range(count):
        machine = Machine(number, quiet, burst)
        found.append([run(machine, plan, effect) for plan in in_rounds(plans)])
    return found


def conclusions(runs: list[Run]) -> dict[str, Conclusion]:
    return {pair.compressed.algorithm: pair.conclusion for pair in pairs(table(runs))}


def labs_that_say(found: list[list[Run]], compression: str) -> Counter[Conclusion]:
    return Counter(conclusions(runs)[compression] for runs in found)


@pytest.mark.parametrize(
    ("seeds", "quiet", "burst"),
    [(2, 60.0, 20.0), (3, 60.0, 20.0), (5, 20.0, 60.0), (3, 8.0, 8.0), (3, 1e9, 1.0)],
)
def test_noise_is_no_benefit(seeds: int, quiet: float, burst: float) -> None:
    found = [conclusions(runs).values() for runs in labs(Effect(), seeds, quiet, burst, LABS)]
    # In 95 % of reports all intervals contain the truth, which is 0 here; and waiting must agree.
    assert sum(Conclusion.PAID in each for each in found) <= 0.01 * LABS
    assert sum(Conclusion.COST in each for each in found) <= 0.05 * LABS


def test_the_load_would_fool_who_compares_means() -> None:
    """Otherwise the simulation would prove nothing."""
    fooled = 0
    for runs in labs(Effect()):
        times = {
            name: [r.training_seconds for r in runs if r.plan.compression == name] for name in COMPRESSIONS
        }
        fooled += any(mean(times[name]) < 0.95 * mean(times["none"]) for name in ("bit16", "bit8"))
    assert fooled > 0.3 * FEW


def test_a_benefit_is_found() -> None:
    of_quiet = labs_that_say(labs(Effect(waiting=-3.0), quiet=1e9), "bit8")
    assert of_quiet[Conclusion.PAID] > 0.95 * FEW
    found = labs(Effect(waiting=-3.0), seeds=5)
    of_busy = labs_that_say(found, "bit8")
    assert of_busy[Conclusion.COST] == 0
    assert of_busy[Conclusion.PAID] > 0.4 * FEW
    others = sum(conclusions(runs)["bit16"] is Conclusion.PAID for runs in found)
    assert others <= 0.05 * FEW, "bit16 saves nothing in these labs"


def test_repeating_what_was_disturbed_finds_it_more_often() -> None:
    def repeated(runs: list[Run], machine: Machine) -> list[Run]:
        found = []
        for before in runs:
            if before.load.during > DISTURBED:
                again = run(machine, before.plan, effect)
                before = min(before, again, key=lambda each: each.load.during)
            found.append(before)
        return found

    effect, rare = Effect(waiting=-3.0), {"quiet": 200.0, "burst": 30.0}
    found = labs(effect, **rare)
    again = [repeated(runs, Machine(FEW + n, 200.0, 30.0)) for n, runs in enumerate(found)]
    before, after = (labs_that_say(each, "bit8")[Conclusion.PAID] for each in (found, again))
    assert after > before + 0.1 * FEW
    nothing = [repeated(runs, Machine(FEW + n, 200.0, 30.0)) for n, runs in enumerate(labs(Effect(), **rare))]
    assert sum(Conclusion.PAID in conclusions(runs).values() for runs in nothing) <= 0.05 * FEW


def test_time_that_waiting_does_not_explain_is_no_benefit() -> None:
    found = labs_that_say(labs(Effect(computing=-3.0), quiet=1e9), "bit8")
    assert found[Conclusion.PAID] == 0
    assert found[Conclusion.UNEXPLAINED] > 0.95 * FEW


def test_what_costs_is_said_to_cost() -> None:
    assert labs_that_say(labs(Effect(waiting=3.0), quiet=1e9), "bit8")[Conclusion.COST] > 0.95 * FEW
