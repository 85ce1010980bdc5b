"""Reductions whose messages the caller carries give the bits of the engine's route of the same kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from carried_ranks import Job, Part, reducescatter
from codec_cases import NAMES
from ranks import AVERAGE, DTYPES, SUM, WORLDS, numbers, on_ranks, predictable, tensor
from test_carried import ROUTES, STOCHASTIC, part

from horovod import _native

SIZE = 3


def residuals(feedback: dict[str, _native.Feedback]) -> list[Any]:
    held = []
    for own in feedback.values():
        for stage in ("sent", "result"):
            begin, values = own.read(stage)
            held.append((begin, np.from_dlpack(values).tobytes(), own.uses))
    return held


def by_engine(
    steps: list[list[Part]], is_scattered: bool, with_feedback: bool, shares_memory: bool
) -> list[Any]:
    """By rank: results by step, residuals, and how many values saturated."""

    def program(rank: int, engine: _native.Engine) -> Any:
        feedback = {
            name: _native.Feedback(xs[0].size)
            for one in steps[0]
            for name, xs in one.tensors.items()
            if with_feedback and one.codec
        }
        results = []
        for parts in steps:
            handles, outs = [], []
            for one in parts:
                for name, xs in one.tensors.items():
                    outs.append(xs[rank].copy())
                    view = tensor(outs[-1], feedback=feedback.get(name))
                    handles.append(engine.allreduce(name, [view], one.reduction()))
            for handle in handles:
                engine.wait(handle)
            results.append([out.tobytes() for out in outs])
        return results, residuals(feedback), engine.counters()["saturated"]

    settings = predictable("scatter" if is_scattered else "gather")
    return on_ranks(len(next(iter(steps[0][0].tensors.values()))), program, shares_memory, settings)


def by_carrying(steps: list[list[Part]], is_scattered: bool, with_feedback: bool) -> list[Any]:
    size = len(next(iter(steps[0][0].tensors.values())))
    job = Job(size, is_scattered)
    if with_feedback:
        job.keep_residuals([one for one in steps[0] if one.codec])
    outcomes = [job.allreduce(parts) for parts in steps]
    by_rank = []
    for rank in range(size):
        results = [[x.tobytes() for x in outcome.values[rank]] for outcome in outcomes]
        by_rank.append((results, residuals(job.feedback[rank])))
    return [by_rank, sum(outcome.saturated for outcome in outcomes)]


def assert_twins(
    steps: list[list[Part]], is_scattered: bool, with_feedback: bool = False, shares_memory: bool = False
) -> None:
    expected = by_engine(steps, is_scattered, with_feedback, shares_memory)
    by_rank, saturated = by_carrying(steps, is_scattered, with_feedback)
    for rank, (results, kept) in enumerate(by_rank):
        assert results == expected[rank][0], f"results of rank {rank}"
        assert kept == expected[rank][1], f"residuals of rank {rank}"
    assert saturated == sum(count for *_, count in expected)


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("is_scattered", ROUTES)
def test_every_codec(is_scattered: bool, shares_memory: bool) -> None:
    steps = [
        [
            part(SIZE, codec, ("float32", "float16", "bfloat16", "float64")[i % 4], step=step, of=f"{i}.")
            for i, codec in enumerate(["", *NAMES])
        ]
        for step in range(2)
    ]
    assert_twins(steps, is_scattered, shares_memory=shares_memory)


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["bit8/128", "int4/64/hadamard/seed7", STOCHASTIC])
def test_residuals(codec: str, is_scattered: bool) -> None:
    for size in (3, 4):
        steps = [[part(size, codec, step=step), part(size, of="exact")] for step in range(3)]
        assert_twins(steps, is_scattered, with_feedback=True)


@pytest.mark.parametrize("is_scattered", ROUTES)
def test_what_saturates_is_counted_where_it_is_encoded(is_scattered: bool) -> None:
    """Values of 1e5 are too large for a half, and their sums again."""
    large = Part({"x": [np.full(300, 1e5, np.float32) for _ in range(SIZE)]}, "bit16", SUM)
    assert_twins([[large]], is_scattered)
    assert Job(SIZE, is_scattered).allreduce([large]).saturated > 0


@pytest.mark.parametrize("codec", ["", *NAMES])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_reducescatter(size: int, codec: str) -> None:
    """Also where chunks are no multiple of a block."""
    how = Part({}, codec, AVERAGE, 0.5, 3.0)
    for dtype in ("float32", "float16", "bfloat16", "float64"):
        for shape in ((size, 1), (2 * size, 70), (size, 4099), (size, 0)):
            xs_by_step = [
                [numbers(r, int(np.prod(shape)), DTYPES[dtype][1], step).reshape(shape) for r in range(size)]
                for step in range(2)
            ]

            def program(rank: int, engine: _native.Engine, steps: Any = xs_by_step) -> list[bytes]:
                results = []
                for xs in steps:
                    out = np.zeros(xs[rank].size // size, xs[rank].dtype)
                    handle = engine.reducescatter("x", [tensor(xs[rank], out)], how.reduction())
                    engine.wait(handle)
                    results.append(out.tobytes())
                return results

            expected = on_ranks(size, program)
            keys = [_native.DrawKeys() for _ in range(size)]
            outcomes = [reducescatter("x", xs, how, keys) for xs in xs_by_step]
            for rank in range(size):
                assert [outcome.values[rank][0].tobytes() for outcome in outcomes] == expected[rank]
