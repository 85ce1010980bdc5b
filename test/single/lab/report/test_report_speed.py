"""A report's sentences on speed-up, if ranks divided the steps among them and if they did not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from lab_samples import sample_runs
from report_pages import HERE, SPEED, explained, says, summarised, warned

from horovod.lab.runs import Run


def with_steps(runs: Sequence[Run], steps: dict[int, int], step: float = 0.1) -> list[Run]:
    """Runs with as many steps as `steps` has for their ranks, each of one length."""
    made = []
    for run in runs:
        count = steps[run.plan.ranks]
        made.append(
            replace(run, step_seconds=(step,) * count, step_waits=(0.0,) * count, step_losses=(1.0,) * count)
        )
    return made


def said_of(runs: Sequence[Run]) -> tuple[str, str, list[str]]:
    """Summary, the sentences on speed-up, and warnings."""
    return summarised(runs), explained(runs, SPEED), warned(runs)


def test_ranks_that_did_as_many_steps_are_not_judged_by_the_ideal() -> None:
    runs = with_steps(sample_runs(HERE, ("none",), (1, 2, 4)), {1: 10, 2: 10, 4: 10})
    summary, speed, warnings = said_of(runs)
    assert says(summary, "times_of_unequal_work") and says(speed, "unequal_examples")
    assert says(speed, "steps_same", row="none × 4", steps=10, serial_steps=10)
    for ranks in (2, 4):
        factor = f"{ranks:.2f}"
        values = {"row": f"none × {ranks}", "speed_up": "1.00", "examples": factor, "factor": factor}
        assert says(speed, "per_example_fell", **values)
    for key in ("near_ideal", "part_of_ideal", "far_from_ideal", "slower_than_serial", "among_divided"):
        assert not says(speed, key)
    assert not says(speed, "speed_best")
    (warning,) = warnings
    assert says(warning, "warn_examples", rows="none × 2, none × 4")


def test_other_numbers_of_steps_are_counted_by_example() -> None:
    runs = with_steps(sample_runs(HERE, ("none",), (1, 4)), {1: 100, 4: 50})
    _, speed, _ = said_of(runs)
    assert says(speed, "steps_other", row="none × 4", steps=50, serial_steps=100)
    assert says(speed, "per_example_fell", speed_up="2.00", examples="2.00", factor="4.00")
    slow = with_steps(runs[1:], {4: 50}, step=1.6)
    _, speed, _ = said_of([*runs[:1], *slow])
    assert says(speed, "per_example_rose", factor="4.00")


def test_each_row_is_judged_by_its_own_steps() -> None:
    runs = with_steps(sample_runs(HERE, ("none",), (1, 2, 4)), {1: 100, 2: 50, 4: 100})
    _, speed, (warning,) = said_of(runs)
    assert says(speed, "steps_divided", row="none × 2", steps=50, serial_steps=100)
    assert says(speed, "speed_best", row="none × 2", speed_up="2.00")
    assert says(speed, "among_divided") and not says(speed, "speed_worst")
    assert says(speed, "per_example_fell", row="none × 4", speed_up="1.00", examples="4.00")
    assert says(warning, "warn_examples", rows="none × 4")


@pytest.mark.parametrize(("alone", "together"), [(23, 6), (22, 5), (470, 117), (470, 118), (8, 2)])
def test_a_last_step_that_is_not_full_divides_all_the_same(alone: int, together: int) -> None:
    runs = with_steps(sample_runs(HERE, ("none",), (1, 4)), {1: alone, 4: together})
    summary, speed, warnings = said_of(runs)
    assert says(speed, "speed_best") and "unequal" not in summary + speed and warnings == []
