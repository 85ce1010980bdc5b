"""The score of a block of steps, the parts of a step, and the detection of changed steps."""

import random
from typing import Any

import pytest
from refusals import refused

from horovod.common.sentences import Sentence
from horovod.tune import errors
from horovod.tune.scores import Shift, seconds_of, shares_of

STEPS = [0.10, 0.11, 0.10, 0.09, 0.10]


def test_a_checkpoint_falls_to_nobody() -> None:
    assert seconds_of([*STEPS, 2.0], "filter") == pytest.approx(0.1)
    assert seconds_of([*STEPS, 2.0], "time") == pytest.approx(2.5 / 6)
    assert seconds_of([*STEPS, 0.02]) < 0.1, "what is shorter counts"
    assert seconds_of([0.1, 0.1, 0.1, 0.1001]) == pytest.approx(0.100025), "a hair is no outlier"


@pytest.mark.parametrize(
    ("steps", "mode", "row"), [([], "time", errors.no_steps), ([1.0], "best", errors.no_score_mode)]
)
def test_what_has_no_score(steps: list[float], mode: str, row: Sentence[Any]) -> None:
    with refused(row):
        seconds_of(steps, mode)


def test_shares() -> None:
    counted = {"collective_microseconds": 600_000, "blocked_microseconds": 200_000}
    shares = shares_of(1.0, counted)
    assert (shares.exposed, shares.hidden, shares.linearity) == pytest.approx((0.2, 0.4, 0.8))
    assert str(shares).startswith("communication 60% of a step: 20% exposed, 40% hidden")
    assert shares_of(0.1, counted).linearity == 0, "never more than all of it"


def shifts(seconds: list[float]) -> int:
    shift = Shift()
    return sum(shift.add(each) for each in seconds)


def test_a_change_that_stays_is_found_once_and_chance_never() -> None:
    draw = random.Random(1)

    def made(mean: float, count: int) -> list[float]:
        return [mean * draw.lognormvariate(0, 0.05) for _ in range(count)]

    assert shifts(made(0.1, 2000)) == 0
    assert shifts(made(0.1, 300) + made(0.15, 700)) == 1 == shifts(made(0.1, 300) + made(0.06, 700))
    assert shifts(made(0.1, 300) + made(0.3, 60) + made(0.1, 700)) == 0, "somebody else's work for a while"
