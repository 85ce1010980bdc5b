"""A job's tuning without a core: when ranks agree, and on what. Ranks are objects; times are made up."""

from __future__ import annotations

import dataclasses
import math
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from refusals import refused
from tune_landscapes import CYCLE, FUSION, WRONG, ordinary

from horovod.tune import errors
from horovod.tune.cache import Cache, Key, Stored
from horovod.tune.knobs import Space
from horovod.tune.report import as_data, so_far, table
from horovod.tune.search import NO_NEIGHBOUR, Result
from horovod.tune.tuner import AGAIN, LINES, WATCH, Decision, Director, Plan, Trained, Tuner

ORDINARY = Plan()
KEY = Key("machine", "digest", "Net", "1+1", "1.0", "optimizer")
ALL, HALF, HEAD = (
    Trained(ordinary, dataclasses.replace(KEY, model=model)) for model in ("digest", "half", "head")
)


class Agreed:
    """The operations of a job's ranks: the n-th calls of all ranks are one operation, with rank 0's text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.asked = [0, 0, 0]

    def of(self, rank: int) -> Asking:
        return Asking(self, rank)


class Asking:
    def __init__(self, agreed: Agreed, rank: int) -> None:
        self.agreed, self.rank = agreed, rank

    def start(self, text: str) -> Callable[[], str]:
        if self.rank == 0:
            self.agreed.texts.append(text)
        number = self.agreed.asked[self.rank]
        self.agreed.asked[self.rank] += 1

        def text_of_all() -> str:
            assert self.agreed.asked[0] > number, "rank 0 has not asked: all wait for ever"
            return self.agreed.texts[number]

        return text_of_all

    def latest(self) -> str:
        return self.agreed.texts[-1] if self.agreed.texts else ""


class MadeJob:
    """Ranks that make steps together; their seconds follow from their settings."""

    def __init__(self, start: dict[str, str], plan: Plan = ORDINARY, cache: Cache | None = None) -> None:
        self.lines: list[str] = []
        self.space = Space([FUSION, CYCLE], start)
        self.director = Director(self.space, ALL, plan, self.lines.append, cache)
        self.now, self.factor, self.draw = 0.0, 1.0, random.Random(2)
        self.trained = ALL
        self.agreed = Agreed()
        self.ranks = [self.tuner(rank) for rank in range(3)]

    def tuner(self, rank: int) -> Tuner:
        return Tuner(self.agreed.of(rank), self.director if rank == 0 else None, lambda: self.now)

    @property
    def settings(self) -> list[dict[str, str]]:
        return [dict(tuner.decision.settings) or self.space.start for tuner in self.ranks]

    def step(self, *ranks: int) -> None:
        self.now += self.factor * ordinary(self.settings[0]) * math.exp(self.draw.gauss(0, 0.02))
        for rank in ranks or range(3):
            self.ranks[rank].step_ended(lambda: self.trained)

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()
            assert self.settings[0] == self.settings[1] == self.settings[2]

    @property
    def phase(self) -> str:
        return self.ranks[0].decision.phase


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path, pytest.fail)


def test_a_job_from_its_first_step_to_its_end(cache: Cache) -> None:
    job = MadeJob(WRONG, cache=cache)
    job.steps(2)
    assert job.phase == "warming up" and job.settings[2] == job.space.start
    job.steps(20)
    assert job.phase == "searching" and job.lines == [
        "tuning 2 settings, in 400 steps at most; training goes on meanwhile"
    ]
    job.steps(390)
    assert job.phase == "watching" and job.settings[2] == job.director.settings()
    assert ordinary(job.settings[2]) < 0.25 * ordinary(job.space.start)
    asked = job.agreed.asked[1]
    job.steps(10 * WATCH)
    assert job.agreed.asked[1] - asked <= 10, "hardly anything is asked any more"
    stored = cache.find(KEY)
    assert stored is not None and stored.settings == job.director.settings() and stored.figures["duels"]


def test_the_second_time_nothing_is_tried(cache: Cache) -> None:
    MadeJob(WRONG, cache=cache).steps(420)
    again = MadeJob(WRONG, cache=cache)
    again.steps(2)
    assert again.phase == "watching" and again.settings[1] == again.director.settings() != again.space.start
    again.steps(300)
    (line,) = again.lines
    assert again.director.trials == [] and line.endswith(" as fast; nothing is tried")
    for name, text in again.director.settings().items():
        assert (f"{name}={text}" in line) == (text != again.space.start[name])
    assert f", found on {time.strftime('%Y-%m-%d')}, " in line


def test_what_is_said_of_a_record_that_changes_nothing(cache: Cache) -> None:
    first = MadeJob(WRONG, cache=cache)
    first.steps(420)
    stored = cache.find(KEY)
    assert stored is not None and {"date", "parameters", "tensors"} <= stored.figures.keys()
    cache.keep(dataclasses.replace(stored, figures={"why_it_ended": NO_NEIGHBOUR}))
    again = MadeJob(first.director.settings(), cache=cache)
    again.steps(2)
    assert again.lines == [
        "tuning: goes on with its own settings, the best that were found before; nothing is tried"
    ]


def test_update_goes_on_from_what_was_found(cache: Cache) -> None:
    first = MadeJob(WRONG, cache=cache)
    first.steps(420)
    again = MadeJob(WRONG, Plan(reuse="update"), cache)
    again.steps(30)
    assert again.phase == "searching" and again.director.trials[0].settings == first.director.settings()


def test_off_neither_reads_nor_writes(cache: Cache) -> None:
    MadeJob(WRONG, Plan(reuse="off"), cache).steps(420)
    assert cache.all() == []
    MadeJob(WRONG, cache=cache).steps(420)
    again = MadeJob(WRONG, Plan(reuse="off"), cache)
    again.steps(30)
    assert again.phase == "searching"


def test_what_was_found_with_other_choices_is_not_taken(cache: Cache) -> None:
    MadeJob(WRONG, cache=cache).steps(420)
    stored = cache.find(KEY)
    assert stored is not None
    stored.settings["HOROVOD_CYCLE_TIME"] = "123456"
    cache.keep(stored)
    again = MadeJob(WRONG, cache=cache)
    again.steps(30)
    assert again.phase == "searching"


def test_no_step_is_tried_where_there_are_none() -> None:
    job = MadeJob(WRONG, Plan(most_steps=0))
    job.steps(40)
    assert job.phase == "watching" and job.settings[1] == job.space.start and job.director.trials == []


def test_the_budget_is_kept() -> None:
    for most in (30, 100, 400):
        job = MadeJob(WRONG, Plan(most_steps=most))
        job.steps(500)
        assert job.director.figures()["steps"] <= most and job.phase == "watching"


def test_another_workload_starts_it_again() -> None:
    job = MadeJob({})
    job.steps(500)
    assert job.phase == "watching"
    job.steps(600)
    assert job.director.retunings == 0
    job.factor = 2.0
    job.steps(400)
    assert job.director.retunings == 1 and any("tuning again at step" in line for line in job.lines)
    job.steps(500)
    assert job.phase == "watching" and job.director.retunings == 1


def test_a_rank_that_had_joined_has_what_the_others_have() -> None:
    """It made fewer steps. All restart at the end of join(), with the latest settings."""
    for missed in range(1, 13):
        job = MadeJob(WRONG)
        job.steps(33)
        for _ in range(missed):
            job.step(0, 1)
            job.agreed.asked[2] = job.agreed.asked[0]  # the core answers for it
        for rank in range(3):
            job.ranks[rank].begin_afresh()
        job.steps(100)
        assert job.agreed.asked[0] == job.agreed.asked[1] == job.agreed.asked[2]


@pytest.mark.parametrize("missed", range(1, 13))
@pytest.mark.parametrize("late", [0, 2])
def test_a_rank_that_joins_before_its_first_step(late: int, missed: int) -> None:
    """Its tuner is created after the join, and agrees at the same steps as the others."""
    job = MadeJob(WRONG)
    others = [rank for rank in range(3) if rank != late]
    for _ in range(missed):
        if late == 0:  # the core answers for it, with nothing
            job.agreed.texts += [""] * (job.agreed.asked[1] - len(job.agreed.texts))
            job.agreed.asked[0] = max(job.agreed.asked)
        job.step(*others)
    most = max(job.agreed.asked)
    job.agreed.texts += [""] * (most - len(job.agreed.texts))
    job.agreed.asked[late] = most
    job.ranks[late] = job.tuner(late)
    for tuner in job.ranks:
        tuner.begin_afresh()
    job.steps(60)
    assert len(set(job.agreed.asked)) == 1 and job.phase == "searching"


def test_short_epochs_are_watched_too() -> None:
    """Ranks restart after each join."""
    job = MadeJob({})
    job.steps(500)
    assert job.phase == "watching"
    job.factor = 2.0
    for _ in range(40):
        job.steps(AGAIN + 4)
        for tuner in job.ranks:
            tuner.begin_afresh()
    assert job.director.retunings == 1


def test_short_epochs_have_a_warm_up_too() -> None:
    job = MadeJob({}, Plan(warmup_steps=40))
    for epoch in range(4):
        assert job.phase == "warming up", epoch
        job.steps(AGAIN + 3)
        for tuner in job.ranks:
            tuner.begin_afresh()
    job.steps(AGAIN + 3)
    assert job.phase == "searching"


class TestDecision:
    def test_there_and_back(self) -> None:
        one = Decision(
            "searching", 5, {"HOROVOD_CYCLE_TIME": "2", "HOROVOD_COMPRESSION": "int4:rotation=hadamard"}
        )
        assert Decision.from_text(one.to_text()) == one

    @pytest.mark.parametrize(
        "text", ["", "phase=searching", "phase=?\nnext_in=1", "phase=off\nnext_in=0", "phase=off\nnext_in=x"]
    )
    def test_what_is_none(self, text: str) -> None:
        with refused(errors.no_decision, got=text):
            Decision.from_text(text)


def test_the_table_and_the_data() -> None:
    job = MadeJob(WRONG)
    job.steps(420)
    director = job.director
    assert director.result is not None
    lines = table(job.space, director.result, director.figures()["steps"]).splitlines()
    assert lines[0].split()[:2] == ["setting", "default"] and len(lines) == 4
    assert lines[1].split()[:4] == [
        FUSION.name,
        FUSION.default,
        WRONG[FUSION.name],
        director.settings()[FUSION.name],
    ]
    assert "x (" in lines[1] and " steps of trials: " in lines[3] and "in all" in lines[3]
    data = as_data(job.space, director.settings(), director.figures())
    assert data["settings"] == director.settings() and data["gain"][1] > 1 and data["began_with"] == WRONG
    assert not data["is_reused"]
    right = MadeJob({})
    right.steps(420)
    assert right.director.result is not None
    if right.director.settings() == right.space.start:
        said = table(right.space, right.director.result, 9)
        assert "nothing was faster than what the job began with" in said and "x (" not in said


def test_it_says_how_far_it_is() -> None:
    job = MadeJob(WRONG)
    while job.phase != "watching":
        job.step()
    said = [line for line in job.lines if "of at most 400 steps" in line]
    assert 1 <= len(said) <= LINES
    steps = [int(line.split()[1]) for line in said]
    assert steps == sorted(steps) and steps[0] >= 400 / LINES and steps[-1] <= 400
    assert "x (" in said[-1] and said[-1].endswith(f"CYCLE_TIME={job.settings[0][CYCLE.name]}")


def test_it_says_that_nothing_was_faster_yet() -> None:
    assert so_far(Result({"a": "1"})) == "nothing faster was found yet"


def test_after_a_second_search_the_table_is_about_that_one(cache: Cache) -> None:
    """It began with the first one's result, from this job or an earlier one."""
    job = MadeJob(WRONG, cache=cache)
    job.steps(500)
    first = job.director.settings()
    job.factor = 2.0
    job.steps(900)
    again = MadeJob(WRONG, Plan(reuse="update"), cache)
    began = cache.find(KEY)
    again.steps(500)
    for director, start in ((job.director, first), (again.director, began and began.settings)):
        assert director.phase == "watching" and director.result is not None
        assert director.figures()["began_with"] == director.space.start == start
        lines = table(director.space, director.result, director.figures()["steps"]).splitlines()
        changed = {name for name, text in director.settings().items() if text != director.space.start[name]}
        assert {line.split()[0] for line in lines[1:3] if "x (" in line} == changed
        assert ("nothing was faster" in lines[3]) == (not changed)


def test_update_that_finds_nothing_keeps_the_figures_that_decided(cache: Cache) -> None:
    first = MadeJob(WRONG, cache=cache)
    first.steps(420)
    before = cache.find(KEY)
    assert before is not None and before.figures["gain"] and before.figures["began_with"] == WRONG
    again = MadeJob(WRONG, Plan(reuse="update", most_steps=60), cache)
    again.steps(100)
    after = cache.find(KEY)
    assert again.director.result is not None and again.director.result.blocks > 0
    assert not any(duel.is_won for duel in again.director.result.duels), "or this test shows nothing"
    assert after == before


def test_what_was_found_before_is_told_with_its_figures(cache: Cache) -> None:
    first = MadeJob(WRONG, cache=cache)
    first.steps(420)
    again = MadeJob(WRONG, cache=cache)
    assert again.director.settled == 0
    again.steps(2)
    assert again.director.settled == 1
    then, now = first.director.figures(), again.director.figures()
    assert now == {**then, "steps": 0, "is_reused": True} and now["gain"][1] > 1


@pytest.mark.parametrize(
    "figures", [{}, {"gain": "1", "began_with": 3}, {"gain": [1, 2], "steps_allowed": "9"}]
)
def test_figures_of_somebody_elses(cache: Cache, figures: dict[str, object]) -> None:
    job = MadeJob(WRONG, cache=cache)
    cache.keep(Stored(KEY, job.space.defaults(), {**figures, "why_it_ended": NO_NEIGHBOUR}))
    job.steps(2)
    found = job.director.figures()
    assert job.phase == "watching" and found["gain"] is None and found["began_with"] == WRONG
    assert found["steps_allowed"] == 0


@pytest.mark.parametrize("most", [0, 10, 44])
def test_too_few_steps_are_said_at_the_start(most: int) -> None:
    job = MadeJob({}, Plan(most_steps=most))
    job.steps(2)
    assert job.phase == "watching" and job.lines == [
        f"tuning: {most} steps leave nothing to try: 15 of warm-up come first, and the shortest comparison "
        "takes 30; training goes on with what it has"
    ]
    job.factor = 2.0
    job.steps(600)
    assert job.phase == "watching" and len(job.lines) == 1 and job.director.result is None


def test_a_few_more_are_enough() -> None:
    job = MadeJob({}, Plan(most_steps=45))
    job.steps(70)
    assert "tuning 2 settings" in job.lines[0] and job.director.result is not None


def test_other_parameters_start_it_again_in_the_search_and_after_it(cache: Cache) -> None:
    job = MadeJob(WRONG, cache=cache)
    job.steps(40)
    assert job.phase == "searching"
    job.trained = HALF
    job.steps(6)
    assert job.phase == "warming up" and job.director.retunings == 1
    job.steps(450)
    assert job.phase == "watching" and cache.find(KEY) is None
    job.trained = HEAD
    job.steps(WATCH + 2)
    assert job.phase != "watching" and job.director.retunings == 2
    job.steps(450)
    kept = [stored.key for stored in cache.all()]
    assert job.phase == "watching" and {key.model for key in kept} == {"half", "head"}


def test_what_was_being_tried_is_given_up_where_other_parameters_are_trained() -> None:
    job = MadeJob({})
    while job.director.settings() == job.space.start:
        job.step()
    job.trained = HALF
    while job.director.retunings == 0:
        job.step()
    assert job.director.settings() == job.space.start


def test_who_trains_other_parameters_in_turns_comes_to_an_end() -> None:
    """Turns of 1, 30 or 700 steps: two searches, and then the result for each set of parameters."""
    for length in (1, 30, 700):
        job = MadeJob(WRONG, Plan(reuse="off"))
        for number in range(4000):
            job.trained = HALF if number // length % 2 else ALL
            job.step()
        assert job.director.retunings <= 2 and job.phase == "watching", length
        assert sum("in 400 steps at most" in line for line in job.lines) <= 3
        tried = len(job.director.trials)
        job.steps(2 * length)
        assert len(job.director.trials) == tried


def test_how_far_it_is_when_the_job_ends() -> None:
    job = MadeJob(WRONG)
    assert job.director.how_far() == "before any of 400 steps was tried"
    job.steps(60)
    assert re.fullmatch(r"after \d+ of at most 400 steps; \S.*", job.director.how_far())
    job.steps(400)
    assert job.director.how_far() == ""
