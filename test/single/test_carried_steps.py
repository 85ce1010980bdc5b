"""Reductions that go in steps: the bits of those that go in one."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from carried_ranks import Job, Outcome, Part
from codec_cases import NAMES
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import DTYPES, numbers
from test_carried import ROUTES, assert_same_values, part, recipes
from test_carried_engine import residuals

RUN = 4096  # elements: steps are multiples of it


def assert_twins(in_steps: Job, in_one: Job, got: Outcome, wanted: Outcome) -> None:
    assert_same_values(got, wanted)
    assert got.saturated == wanted.saturated
    for ours, theirs in zip(in_steps.feedback, in_one.feedback, strict=True):
        assert residuals(ours) == residuals(theirs)


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["", *NAMES])
def test_every_codec(codec: str, is_scattered: bool) -> None:
    in_steps, in_one = Job(3, is_scattered), Job(3, is_scattered)
    dice = Random(len(codec))
    for turn in range(2):
        dtype = ("float32", "float16", "bfloat16", "float64")[(len(codec) + turn) % 4]
        parts = [part(3, codec, dtype, (30_000, 1, 5000), turn), part(3, "", "float32", (77,), turn, "exact")]
        if turn == 0 and codec:
            for job in (in_steps, in_one):
                job.keep_residuals(parts[:1])
        got = in_steps.allreduce(parts, turn == 1, RUN, dice)
        assert got.steps >= (3 if is_scattered else 9)
        assert_twins(in_steps, in_one, got, in_one.allreduce(parts, turn == 1))


def test_messages_of_steps_are_equally_long_and_have_a_range_of_every_part() -> None:
    """What has ended before takes no room, and what nothing fills is zeros."""
    parts = [
        Part({"a": [numbers(rank, 10_000, DTYPES["float32"][1], 1) for rank in range(2)]}),
        Part({"b": [numbers(rank, 5, DTYPES["float16"][1], 2) for rank in range(2)]}),
    ]
    got = Job(2, False).allreduce(parts, step_elements=RUN)
    (a,), (b,) = parts[0].of(1), parts[1].of(1)
    steps = [a[:RUN].tobytes() + b.tobytes() + bytes(6), a[RUN : 2 * RUN].tobytes(), a[2 * RUN :].tobytes()]
    longest = len(steps[0])
    assert got.messages[1][0].tobytes() == b"".join(step.ljust(longest, b"\0") for step in steps)


@pytest.mark.parametrize("is_scattered", ROUTES)
def test_how_many_there_are(is_scattered: bool) -> None:
    """About as many as asked for, and as even as may be."""
    slices = 3 if is_scattered else 1
    for elements, steps in ((1, 5), (RUN, 5), (RUN + 1, 5), (2 * RUN, 3), (5 * RUN, 1), (10**12, 1)):
        got = Job(3, is_scattered).allreduce([part(3, counts=(5 * RUN * slices,))], step_elements=elements)
        assert got.steps == steps
    for counts in ((), (0, 0)):
        nothing = [part(3, counts=(1, *counts))] if not counts else [part(3, counts=counts)]
        assert Job(3, is_scattered).allreduce(nothing, step_elements=1).steps == 1
    alone = Job(1, is_scattered).allreduce([part(1, counts=(50_000,), postscale=2.0)], step_elements=1)
    assert alone.steps == 1 and alone.messages[0][0].size == 0
    np.testing.assert_array_equal(alone.values[0][0], part(1, counts=(50_000,)).of(0)[0] * 2)


@given(
    recipes=recipes(),
    size=st.integers(2, 4),
    is_scattered=st.booleans(),
    is_compensated=st.booleans(),
    elements=st.sampled_from([1, RUN, RUN + 1, 2 * RUN, 3 * RUN, 10**6]),
    dice=st.randoms(use_true_random=False),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_buckets(
    recipes: Any, size: int, is_scattered: bool, is_compensated: bool, elements: int, dice: Any
) -> None:
    in_steps, in_one = Job(size, is_scattered), Job(size, is_scattered)
    for turn in range(2):
        parts = [
            part(size, codec, dtype, counts, turn, f"{i}.", **how)
            for i, (codec, dtype, counts, how) in enumerate(recipes)
        ]
        if is_compensated and turn == 0:
            for job in (in_steps, in_one):
                job.keep_residuals([one for one in parts if one.codec])
        got = in_steps.allreduce(parts, turn == 1, elements, dice)
        assert_twins(in_steps, in_one, got, in_one.allreduce(parts, turn == 1))
