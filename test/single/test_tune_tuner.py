"""A job's tuning: what ranks agree on and when, without a core: ranks are objects, and times are made."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from tune_landscapes import CYCLE, FUSION, WRONG, ordinary

from horovod.tune.cache import Cache, Key
from horovod.tune.decision import Decision
from horovod.tune.knobs import Space
from horovod.tune.report import as_data, so_far, table
from horovod.tune.search import Result
from horovod.tune.tuner import LINES, WATCH, Director, Plan, Tuner

ORDINARY = Plan()
KEY = Key("machine", "digest", "Net", "1+1", "1.0", "optimizer")


class Agreed:
    """The operations of a job's ranks: the n-th of each is one, and has rank 0's text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.asked = [0, 0, 0]

    def of(self, rank: int) -> Asking:
        return Asking(self, rank)


class Asking:
    def __init__(self, agreed: Agreed, rank: int) -> None:
        self.agreed, self.rank, self.number = agreed, rank, -1

    def start(self, text: str) -> Asking:
        if self.rank == 0:
            self.agreed.texts.append(text)
        one = Asking(self.agreed, self.rank)
        one.number = self.agreed.asked[self.rank]
        self.agreed.asked[self.rank] += 1
        return one

    def text(self) -> str:
        assert self.agreed.asked[0] > self.number, "rank 0 has not asked: all wait for ever"
        return self.agreed.texts[self.number]

    def latest(self) -> str:
        return self.agreed.texts[-1] if self.agreed.texts else ""


class MadeJob:
    """Ranks that make steps together; their seconds follow from the settings that they have."""

    def __init__(self, start: dict[str, str], plan: Plan = ORDINARY, cache: Cache | None = None) -> None:
        self.lines: list[str] = []
        self.space = Space([FUSION, CYCLE], start)
        self.director = Director(self.space, ordinary, plan, self.lines.append, cache, KEY)
        self.now, self.factor, self.draw = 0.0, 1.0, random.Random(2)
        self.settings: list[dict[str, str]] = [self.space.start for _ in range(3)]
        self.agreed = Agreed()
        self.ranks = [self._tuner(rank) for rank in range(3)]

    def _tuner(self, rank: int) -> Tuner:
        def apply(settings) -> None:  # type: ignore[no-untyped-def]
            self.settings[rank] = dict(settings)

        director = self.director if rank == 0 else None
        return Tuner(self.agreed.of(rank), director, apply, lambda: self.now)

    def step(self, *ranks: int) -> None:
        self.now += self.factor * ordinary(self.settings[0]) * math.exp(self.draw.gauss(0, 0.02))
        for rank in ranks or range(3):
            self.ranks[rank].step_ended()

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
    assert again.director.trials == [] and again.lines == [
        "tuning: took what was found before; nothing is tried"
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
    """It made fewer steps. All begin afresh at the end of join(), with the latest settings."""
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
        with pytest.raises(ValueError, match="no decision of a tuner"):
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
