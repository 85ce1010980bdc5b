"""Compares the core's error feedback with a slow NumPy twin and with its definition."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
from feedback_twin import BLOCK, CODEC, ErrorFeedback, bit8, each, residual, step, whole
from numpy.typing import NDArray
from ranks import AVERAGE, DTYPES, WORLDS, numbers, on_ranks, predictable, tensor

from horovod import _native

Array = NDArray[Any]

# ---- against the twin ----


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("count", [1, 100, 4096 * 3 + 1000])
def test_steps_have_the_bits_of_the_twin(size: int, count: int, shares_memory: bool) -> None:
    """Counts below one block, cut by ranks between blocks, and of several runs."""
    steps = [[numbers(rank, count, np.float32, seed) for rank in range(size)] for seed in range(3)]
    twin = ErrorFeedback(each(size), count, CODEC)
    want = [twin.allreduce(xs, AVERAGE) for xs in steps]

    def program(rank: int, engine: _native.Engine) -> tuple[list[Array], _native.Feedback]:
        feedback = _native.Feedback(count)
        return [step(engine, xs[rank], feedback, op=AVERAGE) for xs in steps], feedback

    outcomes = on_ranks(size, program, shares_memory)
    for got, _ in outcomes:
        np.testing.assert_array_equal(got, want)
    for rank, (_, feedback) in enumerate(outcomes):
        np.testing.assert_array_equal(residual(feedback, "sent")[1], twin.sent[rank])
    # Every owner holds its slice; together the slices are the tensor.
    np.testing.assert_array_equal(sum(whole(feedback, "result") for _, feedback in outcomes), twin.result)
    held = sum(residual(feedback, "result")[1].size for _, feedback in outcomes)
    assert held == (count if size > 2 else 0)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("dtype", "options", "factors"),
    [
        *((dtype, {}, {"prescale": 0.3, "postscale": 1.7}) for dtype in ("float16", "bfloat16", "float64")),
        *(
            ("float32", options, {"op": AVERAGE})
            for options in (
                {"name": "int8"},
                {"name": "int4"},
                {"name": "int4", "rotation": "hadamard", "levels": "lloyd", "seed": 5},
                {"name": "bit8", "variant": "e5m2", "rounding": "stochastic", "seed": 3},
                {"name": "int4", "rounding": "stochastic"},
            )
        ),
    ],
    ids=str,
)
def test_other_dtypes_and_codecs_have_the_bits_of_the_twin(
    size: int, dtype: str, options: dict[str, Any], factors: dict[str, Any]
) -> None:
    """Including random numbers: by parameter, use count, stage, rank and element."""
    count = 5000
    codec = _native.get_codec(**options, block_size=BLOCK) if options else bit8()
    steps = [[numbers(rank, count, DTYPES[dtype][1], seed) for rank in range(size)] for seed in range(3)]
    twin = ErrorFeedback(each(size), count, codec.name)
    want = [twin.allreduce(xs, **factors) for xs in steps]

    def program(rank: int, engine: _native.Engine) -> list[Array]:
        feedback = _native.Feedback(count)
        return [step(engine, xs[rank], feedback, codec=codec, **factors) for xs in steps]

    for got in on_ranks(size, program):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)


# ---- its definition ----


def drift(size: int, algorithms: list[str], with_feedback: bool, codec: str) -> tuple[Array, Array]:
    """(sum of results - sum of true means, the residuals in units of the result) after 10 steps of each."""
    count = 3 * BLOCK * size + 5
    xs = [
        numbers(rank, count, np.float32) * np.geomspace(1e-3, 1, count).astype(np.float32)
        for rank in range(size)
    ]
    feedbacks = [_native.Feedback(count) for _ in range(size)]
    error = -10 * len(algorithms) * np.mean(np.array(xs, np.float64), axis=0)

    def program(rank: int, engine: _native.Engine) -> Array:
        applied = np.zeros(count)
        for _ in range(10):
            if not with_feedback:
                feedbacks[rank].clear()
            coded = _native.get_codec(codec, BLOCK)
            applied += step(engine, xs[rank], feedbacks[rank], codec=coded, op=AVERAGE)
        return applied

    for algorithm in algorithms:
        error += on_ranks(size, program, settings=predictable(algorithm))[0]
    pending = [whole(each, "sent").astype(np.float64) / size + whole(each, "result") for each in feedbacks]
    return error, np.sum(pending, axis=0)


@pytest.mark.parametrize("codec", ["bit8", "int4"])
@pytest.mark.parametrize(
    ("size", "algorithms"),
    [(2, ["gather"] * 4), (3, ["scatter"] * 4), (4, ["gather", "scatter", "gather", "scatter"])],
)
def test_what_is_applied_is_what_was_given_but_for_the_residuals(
    size: int, algorithms: list[str], codec: str
) -> None:
    """After any steps on any routes: sum of results = sum of true means - residuals, up to float32 rounding.

    Without feedback a constant gradient has the same error in every step.
    """
    error, pending = drift(size, algorithms, True, codec)
    # In each of 40 steps each rank and the owner round a float32 sum of magnitude < 8 once or twice.
    assert np.abs(error + pending).max() < 40 * (size + 2) * 8 * np.finfo(np.float32).eps
    assert np.abs(pending).max() > 1e-3
    lost, _ = drift(size, algorithms, False, codec)
    assert np.linalg.norm(error) < np.linalg.norm(lost) / 5


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_step_that_overflows_leaves_finite_residuals(size: int, bad: float) -> None:
    count = 10 * BLOCK
    good = [numbers(rank, count, np.float32) for rank in range(size)]
    spoiled = [x.copy() for x in good]
    spoiled[1][40] = bad
    twin = ErrorFeedback(each(size), count, CODEC)
    want = [twin.allreduce(xs) for xs in (good, spoiled, good)]

    def program(rank: int, engine: _native.Engine) -> tuple[list[Array], _native.Feedback]:
        feedback = _native.Feedback(count)
        return [step(engine, xs[rank], feedback) for xs in (good, spoiled, good)], feedback

    for got, feedback in on_ranks(size, program):
        assert not np.isfinite(got[1][40])
        assert np.isfinite(np.delete(got[1], slice(BLOCK, 2 * BLOCK))).all()
        assert np.isfinite(got[2]).all()
        np.testing.assert_array_equal(got[2], want[2])
        for stage in ("sent", "result"):
            assert np.isfinite(residual(feedback, stage)[1]).all()


# ---- other operations at the same time ----


@pytest.mark.parametrize("size", [2, 3])
def test_residuals_do_not_care_what_is_fused_with_what(size: int) -> None:
    """For any sharing of buckets and any order; also tensors larger than a bucket."""
    counts = {"a": 5000, "b": 33, "c": 700, "d": 1}
    rounds = [["a", "b", "c", "d"], ["d", "c", "b", "a"], ["b", "d"], ["c", "a", "d"]]

    def run(threshold: int) -> list[Any]:
        settings = predictable()
        settings.fusion_threshold = threshold

        def program(rank: int, engine: _native.Engine) -> dict[str, list[bytes]]:
            feedback = {name: _native.Feedback(count) for name, count in counts.items()}
            got: dict[str, list[bytes]] = {name: [] for name in counts}
            for number, names in enumerate(rounds):
                xs = {name: numbers(rank, counts[name], np.float32, number) for name in sorted(names)}
                waits = {}
                for name in names if rank != 1 else reversed(names):
                    view = tensor(xs[name], feedback=feedback[name])
                    waits[name] = engine.allreduce(name, [view], _native.Reduction(codec=bit8()))
                for wait in waits.values():
                    engine.wait(wait)
                for name, x in xs.items():
                    got[name].append(x.tobytes())
            return got

        return on_ranks(size, program, settings=settings)

    reference = run(1 << 20)
    assert reference[0] == reference[1]
    assert run(4096) == reference
    assert run(0) == reference


def test_a_group_keeps_the_residuals_of_each_member() -> None:
    counts, size = [10, 500, 40], 3
    xs = [[numbers(rank, count, np.float32) for count in counts] for rank in range(size)]
    twins = [ErrorFeedback(each(size), count, CODEC) for count in counts]
    want = [
        [twin.allreduce([of_rank[i] for of_rank in xs]) for i, twin in enumerate(twins)] for _ in range(2)
    ]

    def program(rank: int, engine: _native.Engine) -> list[list[Array]]:
        feedback = [_native.Feedback(count) for count in counts]
        got = []
        for _ in range(2):
            outs = [np.empty_like(x) for x in xs[rank]]
            views = [tensor(*each) for each in zip(xs[rank], outs, feedback, strict=True)]
            engine.wait(engine.allreduce("group", views, _native.Reduction(codec=bit8())))
            got.append(outs)
        return got

    for got in on_ranks(size, program):
        for one, other in zip(got, want, strict=True):
            for x, y in zip(one, other, strict=True):
                np.testing.assert_array_equal(x, y)


def test_ranks_without_feedback_get_the_same_bits_as_those_with() -> None:
    """Feedback is local to a rank and does not change the wire format."""

    def program(rank: int, engine: _native.Engine) -> Array:
        feedback = _native.Feedback(1000) if rank != 1 else None
        x = numbers(rank, 1000, np.float32)
        for _ in range(3):
            engine.wait(
                engine.allreduce("x", [tensor(x, feedback=feedback)], _native.Reduction(codec=bit8()))
            )
        return x

    first, *others = on_ranks(3, program)
    for other in others:
        np.testing.assert_array_equal(other, first)


def test_an_operation_keeps_its_feedback_alive() -> None:
    def program(rank: int, engine: _native.Engine) -> Array:
        x = numbers(rank, 1000, np.float32)
        handle = engine.allreduce(
            "x", [tensor(x, feedback=_native.Feedback(1000))], _native.Reduction(codec=bit8())
        )
        gc.collect()
        engine.wait(handle)
        return x

    np.testing.assert_array_equal(*on_ranks(2, program))


def test_who_has_joined_contributes_no_residuals() -> None:
    count = 400
    xs = [numbers(rank, count, np.float32) for rank in range(3)]
    twin = ErrorFeedback(each(3), count, CODEC)
    twin.allreduce(xs)
    # The joined rank owns a slice of the result too, and its zeros have no feedback.
    twin.result[256:] = 0
    twin.sent[2][:] = 0
    want = twin.allreduce([*xs[:2], np.zeros(count, np.float32)])

    def program(rank: int, engine: _native.Engine) -> Array:
        feedback = _native.Feedback(count)
        got = step(engine, xs[rank], feedback)
        if rank != 2:
            got = step(engine, xs[rank], feedback)
        engine.wait(engine.join())
        return got

    for got in on_ranks(3, program)[:2]:
        np.testing.assert_array_equal(got, want)
