"""Stochastic rounding draws the same numbers in every run: by name, use count, stage, rank and element."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from feedback_twin import draw_key, mixed
from numpy.typing import NDArray
from ranks import SUM, WORLDS, add_set, allreduce, numbers, on_ranks, predictable, tensor

from horovod import _native
from horovod.common import numpy_codec

Array = NDArray[Any]
DTYPES = (np.float32, np.float16, np.float64)


def stochastic(seed: int = 0) -> _native.Codec:
    return _native.get_codec("bit8", 32, rounding="stochastic", seed=seed)


def ran(
    size: int, program_seed: int, order_seed: int, threshold: int, seed: int = 0
) -> list[dict[str, bytes]]:
    """A random program's results. Each rank submits and waits in its own order, drawn from ``order_seed``."""
    chooser = random.Random(program_seed)
    # In each round of (name, count, dtype, feedback, reduce-scatter) some of 6 names are reduced.
    tensors = [
        (f"t{i}", chooser.randrange(1, 9000), chooser.choice(DTYPES), i % 3 == 0, i == 5) for i in range(6)
    ]
    rounds = [chooser.sample(tensors, chooser.randrange(2, 7)) for _ in range(4)]
    settings = predictable()
    settings.fusion_threshold = threshold

    def program(rank: int, engine: _native.Engine) -> dict[str, bytes]:
        shuffled = random.Random(f"{order_seed} {rank}")
        feedback = {name: _native.Feedback(count) for name, count, *_ in tensors}
        reduction = _native.Reduction(codec=stochastic(seed))
        results = {}
        for number, chosen in enumerate(rounds):
            pending = []
            for name, count, dtype, has_feedback, is_scattered in shuffled.sample(chosen, len(chosen)):
                x = numbers(rank, count, dtype, number)
                if is_scattered:
                    out = np.empty(count // size + (rank < count % size), dtype)
                    handle = engine.reducescatter(name, [tensor(x, out)], reduction)
                else:
                    out = np.empty_like(x)
                    view = tensor(x, out, feedback[name] if has_feedback else None)
                    handle = engine.allreduce(name, [view], reduction)
                pending.append((handle, f"{name} in round {number}", x, out))
            for handle, label, _, out in shuffled.sample(pending, len(pending)):
                engine.wait(handle)
                results[label] = out.tobytes()
        return results

    return on_ranks(size, program, settings=settings)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("program_seed", range(5))
def test_random_programs_draw_alike_whatever_the_order_and_the_buckets(size: int, program_seed: int) -> None:
    reference = ran(size, program_seed, 0, 1 << 26)
    for order_seed, threshold in ((0, 1 << 26), (1, 1 << 26), (2, 20_000), (3, 0)):
        assert ran(size, program_seed, order_seed, threshold) == reference
    assert ran(size, program_seed, 0, 1 << 26, seed=1) != reference


X = numbers(0, 1000, np.float32)


def contribution(rank: int, use: int, member: int = 0) -> Array:
    """The message of rank ``rank`` of a set for X as member ``member`` of group "x", use ``use``."""
    coded = numpy_codec.named_codec(stochastic(7).name)
    key = mixed(mixed(mixed(draw_key("x", use), 0), member), 0)  # 0: epoch, and stage
    return np.asarray(coded.decode(coded.encode(X, key=mixed(key, rank)), X.size))


@pytest.mark.parametrize("shares_memory", WORLDS)
def test_each_reduction_of_a_name_draws_other_numbers(shares_memory: bool) -> None:
    """Ranks draw different numbers, too."""

    def program(rank: int, engine: _native.Engine) -> list[Array]:
        return [allreduce(engine, "x", X, codec=stochastic(7)) for _ in range(3)]

    for got in on_ranks(2, program, shares_memory):
        for use, result in enumerate(got):
            np.testing.assert_array_equal(result, contribution(0, use) + contribution(1, use))
        assert not np.array_equal(got[0], got[1])
    assert not np.array_equal(contribution(0, 0), contribution(1, 0))


def test_members_of_a_group_draw_apart_and_process_sets_count_for_themselves() -> None:
    def program(rank: int, engine: _native.Engine) -> list[Array]:
        pair = add_set(engine, 1, 2)
        outs = [np.empty_like(X) for _ in range(2)]
        group = [tensor(X, out) for out in outs]
        engine.wait(engine.allreduce("x", group, _native.Reduction(SUM, codec=stochastic(7))))
        if rank != 0:
            outs.append(allreduce(engine, "x", X, pair, codec=stochastic(7)))
        engine.wait(engine.barrier("end"))
        return outs

    settings = predictable("gather")
    for first, second, *in_pair in on_ranks(3, program, settings=settings):
        for member, got in enumerate((first, second)):
            want = contribution(0, 0, member) + contribution(1, 0, member) + contribution(2, 0, member)
            np.testing.assert_array_equal(got, want)
        for got in in_pair:
            np.testing.assert_array_equal(got, contribution(0, 0) + contribution(1, 0))


def test_feedback_counts_by_itself_and_can_be_told() -> None:
    """A job resumed from a checkpoint draws the same numbers as an uninterrupted job."""
    x = numbers(0, 500, np.float32)

    def program(rank: int, engine: _native.Engine, uses: int, steps: int) -> list[Array]:
        feedback = _native.Feedback(x.size)
        feedback.uses = uses
        results = []
        for _ in range(steps):
            out = np.empty_like(x)
            engine.wait(
                engine.allreduce("x", [tensor(x, out, feedback)], _native.Reduction(codec=stochastic()))
            )
            feedback.clear()
            results.append(out)
        assert feedback.uses == uses + steps
        return results

    whole = on_ranks(2, lambda rank, engine: program(rank, engine, 0, 3))[0]
    resumed = on_ranks(2, lambda rank, engine: program(rank, engine, 2, 1))[0]
    np.testing.assert_array_equal(resumed[0], whole[2])
    assert not np.array_equal(whole[0], whole[2])


def test_without_random_numbers_nothing_is_counted() -> None:
    def program(rank: int, engine: _native.Engine) -> int:
        x, feedback = numbers(rank, 500, np.float32), _native.Feedback(500)
        reduction = _native.Reduction(codec=_native.get_codec("bit8"))
        engine.wait(engine.allreduce("x", [tensor(x, feedback=feedback)], reduction))
        return feedback.uses

    assert on_ranks(2, program) == [0, 0]
