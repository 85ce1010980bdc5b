"""What a report says of speed-up, where the ranks divided the steps and where they did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from lab_samples import sample_environment, sample_host, sample_runs

from horovod.lab.report import explanation, method, summary
from horovod.lab.report.names import Names
from horovod.lab.report.words import LANGUAGES, Words
from horovod.lab.results import table
from horovod.lab.runs import Run

HERE = Path("/lab")
ROOMY = sample_environment(sample_host(cores=64))


def with_steps(runs: Sequence[Run], steps: dict[int, int], step: float = 0.1) -> list[Run]:
    """Runs with as many steps as `steps` has for their ranks, each of one length."""
    made = []
    for run in runs:
        count = steps[run.plan.ranks]
        made.append(
            replace(run, step_seconds=(step,) * count, step_waits=(0.0,) * count, step_losses=(1.0,) * count)
        )
    return made


def said_of(runs: Sequence[Run], language: str = "en") -> tuple[str, str, list[str]]:
    """Summary, the sentences on speed-up, and warnings."""
    rows, words = table(runs), Words(language)
    names = Names(rows, words)
    sections = explanation.sections(rows, ROOMY, [], names, words)
    speed = next(" ".join(found.sentences) for found in sections if found.title == words("speed_title"))
    summarised = " ".join(summary.sentences(rows, ROOMY, names, words))
    return summarised, speed, method.warnings(runs, rows, names, words)


@pytest.mark.parametrize("language", LANGUAGES)
def test_ranks_that_did_as_many_steps_are_not_judged_by_the_ideal(language: str) -> None:
    runs = with_steps(sample_runs(HERE, ("none",), (1, 2, 4)), {1: 10, 2: 10, 4: 10})
    words = Words(language)
    summarised, speed, warnings = said_of(runs, language)
    assert words("times_of_unequal_work") in summarised
    assert words("unequal_examples") in speed
    assert words("steps_same", row="none × 4", steps=10, serial_steps=10) in speed
    for ranks in (2, 4):
        factor = f"{ranks:.2f}"
        values = {"row": f"none × {ranks}", "speed_up": "1.00", "examples": factor, "factor": factor}
        assert words("per_example_fell", **values) in speed
    for key in ("near_ideal", "part_of_ideal", "far_from_ideal", "slower_than_serial", "among_divided"):
        assert words(key) not in speed
    assert "deal is a speed-up" not in speed
    assert "理想" not in speed
    assert warnings == [words("warn_examples", rows=words.listed(["none × 2", "none × 4"]))]


def test_other_numbers_of_steps_are_counted_by_example() -> None:
    runs = with_steps(sample_runs(HERE, ("none",), (1, 4)), {1: 100, 4: 50})
    _, speed, _ = said_of(runs)
    assert "For one epoch none × 4 took 50 steps, the serial run 100." in speed
    assert (
        "speed-up 2.00 with 2.00 times as many examples; the time per example fell by a factor of 4.00"
        in speed
    )
    slow = with_steps(runs[1:], {4: 50}, step=1.6)
    _, speed, _ = said_of([*runs[:1], *slow])
    assert "the time per example rose by a factor of 4.00" in speed


def test_each_row_is_judged_by_its_own_steps() -> None:
    runs = with_steps(sample_runs(HERE, ("none",), (1, 2, 4)), {1: 100, 2: 50, 4: 100})
    _, speed, (warning,) = said_of(runs)
    assert "For one epoch none × 2 took 50 steps where the serial run took 100" in speed
    assert "The most efficient row is none × 2: speed-up 2.00" in speed
    assert "What follows is of the rows whose ranks divided the steps" in speed
    assert "The least efficient" not in speed
    assert "none × 4: speed-up 1.00 with 4.00 times as many examples" in speed
    assert "none × 4" in warning
    assert "none × 2" not in warning


@pytest.mark.parametrize(("alone", "together"), [(23, 6), (22, 5), (470, 117), (470, 118), (8, 2)])
def test_a_last_step_that_is_not_full_divides_all_the_same(alone: int, together: int) -> None:
    runs = with_steps(sample_runs(HERE, ("none",), (1, 4)), {1: alone, 4: together})
    summarised, speed, warnings = said_of(runs)
    assert "Ideal is a speed-up equal to the number of devices" in speed
    assert "unequal" not in summarised + speed
    assert warnings == []
