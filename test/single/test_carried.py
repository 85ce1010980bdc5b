"""Reductions whose messages the caller carries: every byte is the twin's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from carried_ranks import Job, Outcome, Part
from carried_twin import Twin
from codec_cases import NAMES
from feedback_twin import residual, whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import AVERAGE, DTYPES, MAX, MIN, PRODUCT, SUM, numbers

COUNTS = (5000, 0, 1, 129, 4096, 31)
ROUTES = [pytest.param(False, id="gather"), pytest.param(True, id="scatter")]
STOCHASTIC = "int8/32/stochastic/seed9"


def part(
    size: int,
    codec: str = "",
    dtype: str = "float32",
    counts: Sequence[int] = COUNTS,
    step: int = 0,
    of: str = "w",
    **how: Any,
) -> Part:
    """A part of tensors named after their place."""
    numpy_type = DTYPES[dtype][1]
    tensors = {
        f"{of}{i}": [numbers(rank, count, numpy_type, 100 * step + i) for rank in range(size)]
        for i, count in enumerate(counts)
    }
    return Part(tensors, codec, **how)


def assert_same(got: Outcome, want: Outcome) -> None:
    for rank, (messages, expected) in enumerate(zip(got.messages, want.messages, strict=True)):
        for owner, (message, other) in enumerate(zip(messages, expected, strict=True)):
            assert message.tobytes() == other.tobytes(), f"what rank {rank} sends to rank {owner}"
    for owner, (message, other) in enumerate(zip(got.results, want.results, strict=True)):
        assert message.tobytes() == other.tobytes(), f"the result of rank {owner}"
    assert_same_values(got, want)


def assert_same_values(got: Outcome, want: Outcome) -> None:
    for rank, (values, expected) in enumerate(zip(got.values, want.values, strict=True)):
        for x, y in zip(values, expected, strict=True):
            assert x.tobytes() == y.tobytes(), f"rank {rank}, {x.size} elements of {x.dtype}"


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["", *NAMES])
def test_every_codec(codec: str, is_scattered: bool) -> None:
    job, twin = Job(3, is_scattered), Twin(3, is_scattered)
    for step in range(2):
        parts = [part(3, codec, step=step, prescale=0.5)]
        assert_same(job.allreduce(parts, in_place=step == 1), twin.allreduce(parts))


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("codec", ["", "bit8/128", "int4/32/stochastic"])
def test_every_float(codec: str, dtype: str, is_scattered: bool) -> None:
    for size in (2, 5):
        parts = [part(size, codec, dtype, prescale=1 / 3, postscale=3.0)]
        assert_same(Job(size, is_scattered).allreduce(parts), Twin(size, is_scattered).allreduce(parts))


@pytest.mark.parametrize("is_scattered", ROUTES)
def test_exact_parts_of_any_dtype_and_op(is_scattered: bool) -> None:
    kinds = [("int32", SUM), ("float32", MIN), ("int64", AVERAGE), ("float16", PRODUCT), ("uint8", MAX)]
    kinds += [("bool", SUM), ("bool", MIN), ("float64", AVERAGE), ("int8", SUM)]
    parts = [
        part(3, dtype=dtype, op=op, counts=(130, 3, 1000), of=f"{i} ") for i, (dtype, op) in enumerate(kinds)
    ]
    got = Job(3, is_scattered).allreduce(parts)
    assert_same_values(got, expected_of_bool(parts, Twin(3, is_scattered).allreduce(parts)))


def expected_of_bool(parts: list[Part], outcome: Outcome) -> Outcome:
    """A sum of truth values is whether there is any."""
    for values in outcome.values:
        for number, x in enumerate(x for one in parts for x in one.tensors.values()):
            if x[0].dtype == np.bool_ and parts[number // 3].op == SUM:
                values[number] = np.logical_or.reduce(x)
    return outcome


@pytest.mark.parametrize("is_scattered", ROUTES)
def test_parts_that_differ_share_a_message(is_scattered: bool) -> None:
    """Each begins at a multiple of 16 bytes, and what nothing fills is zeros."""
    job, twin = Job(3, is_scattered), Twin(3, is_scattered)
    for step in range(2):
        parts = [
            part(3, "bit8/32", "float16", (1, 77), step, "a", prescale=2.0),
            part(3, "", "float32", (33, 1), step, "b", op=SUM),
            part(3, STOCHASTIC, "float32", (5000,), step, "c"),
            part(3, "", "float16", (5,), step, "d", postscale=0.5),
        ]
        assert_same(job.allreduce(parts), twin.allreduce(parts))


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["bit8/32", "bit16", STOCHASTIC, "int4/128/stochastic/hadamard"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_residuals_over_steps(codec: str, dtype: str, is_scattered: bool) -> None:
    size = 3
    job, twin = Job(size, is_scattered), Twin(size, is_scattered)
    for both in (job, twin):
        both.keep_residuals([part(size, codec, dtype)])
    for step in range(3):
        parts = [part(size, codec, dtype, step=step, prescale=1 / size, op=SUM)]
        assert_same(job.allreduce(parts), twin.allreduce(parts))
    for name, (sent, result) in twin.residuals.items():
        own = [feedback[name] for feedback in job.feedback]
        for feedback, wanted in zip(own, sent, strict=True):
            np.testing.assert_array_equal(residual(feedback, "sent")[1], wanted)
        # Each owner has its slice, and together they have the tensor once.
        np.testing.assert_array_equal(sum(whole(feedback, "result") for feedback in own), result)
        held = sum(residual(feedback, "result")[1].size for feedback in own)
        assert held == (result.size if is_scattered else 0)


def test_an_infinity_is_sent_once_and_not_kept() -> None:
    parts = [part(2, "bit8/32/e5m2", counts=(100,))]
    parts[0].tensors["w0"][1][7] = np.inf
    job, twin = Job(2, True), Twin(2, True)
    for both in (job, twin):
        both.keep_residuals(parts)
    assert_same(job.allreduce(parts), twin.allreduce(parts))
    parts = [part(2, "bit8/32/e5m2", counts=(100,))]
    got = job.allreduce(parts)
    assert_same(got, twin.allreduce(parts))
    assert np.isfinite(got.values[0][0]).all()


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["", "bit8/128", "int4/128/stochastic"])
def test_a_world_of_one_moves_nothing_and_quantises_nothing(codec: str, is_scattered: bool) -> None:
    for dtype in ("float32", "bfloat16"):
        parts = [part(1, codec, dtype, prescale=0.5, postscale=6.0)]
        for in_place in (True, False):
            got = Job(1, is_scattered).allreduce(parts, in_place)
            assert got.messages[0][0].size == 0
            want = [x * x.dtype.type(3) for x in parts[0].of(0)]
            assert [x.tobytes() for x in got.values[0]] == [x.tobytes() for x in want]


@pytest.mark.parametrize("is_scattered", ROUTES)
def test_nothing_but_empty_tensors(is_scattered: bool) -> None:
    got = Job(3, is_scattered).allreduce([part(3, "bit8/128", counts=(0, 0))])
    assert all(message.size == 0 for messages in got.messages for message in messages)
    assert [x.size for x in got.values[0]] == [0, 0]


# ---- random programs ----

CODECS = st.sampled_from(["", "", *NAMES])
FLOATS = st.sampled_from(["float32", "float16", "bfloat16", "float64"])
LENGTHS = st.one_of(st.integers(0, 300), st.sampled_from([4095, 4096, 4097, 9000]))
FACTORS = st.sampled_from([1.0, 0.25, 3.0])


@st.composite
def recipes(draw: st.DrawFn) -> list[tuple[str, str, list[int], dict[str, Any]]]:
    how = st.fixed_dictionaries(
        {"op": st.sampled_from([SUM, AVERAGE]), "prescale": FACTORS, "postscale": FACTORS}
    )
    one = st.tuples(CODECS, FLOATS, st.lists(LENGTHS, min_size=1, max_size=4), how)
    return draw(st.lists(one, min_size=1, max_size=4))


@given(
    recipes=recipes(),
    size=st.integers(2, 5),
    is_scattered=st.booleans(),
    is_compensated=st.booleans(),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_buckets(recipes: Any, size: int, is_scattered: bool, is_compensated: bool, order: Any) -> None:
    """Parts in another order each step, some left out: names keep their random numbers and residuals."""
    job, twin = Job(size, is_scattered), Twin(size, is_scattered)

    def parts_of(step: int) -> list[Part]:
        return [
            part(size, codec, dtype, counts, step, f"{i}.", **how)
            for i, (codec, dtype, counts, how) in enumerate(recipes)
        ]

    if is_compensated:
        for both in (job, twin):
            both.keep_residuals([one for one in parts_of(0) if one.codec])
    for step in range(3):
        parts = parts_of(step)
        chosen = order.sample(parts, order.randrange(1, len(parts) + 1))
        assert_same(job.allreduce(chosen, in_place=step == 1), twin.allreduce(chosen))
