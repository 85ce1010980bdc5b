"""Error feedback of the core, against a slow twin in NumPy and by what defines it."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import oracle
import pytest
from numpy.typing import NDArray
from ranks import ADASUM, AVERAGE, DTYPES, MAX, SUM, WORLDS, add_set, numbers, on_ranks, tensor

from horovod import _native

Array = NDArray[Any]
BLOCK = 32


def bit8() -> _native.Codec:
    return _native.get_codec("bit8", BLOCK)


def residual(feedback: _native.Feedback, stage: str) -> tuple[int, Array]:
    begin, values = feedback.read(stage)
    return begin, np.from_dlpack(values)


def whole(feedback: _native.Feedback, stage: str) -> Array:
    """A stage's residuals of all elements, zero where the rank holds none."""
    begin, values = residual(feedback, stage)
    everything = np.zeros(feedback.count, np.float32)
    everything[begin : begin + values.size] = values
    return everything


def step(
    engine: _native.Engine,
    x: Array,
    feedback: _native.Feedback,
    name: str = "x",
    process_set: int = 0,
    **how: Any,
) -> Array:
    """A blocking out-of-place allreduce with bit8 and feedback."""
    out = np.empty_like(x)
    reduction = _native.Reduction(codec=bit8(), **how)
    engine.wait(engine.allreduce(name, [tensor(x, out, feedback)], reduction, process_set))
    return out


# ---- the object ----


def test_residuals_are_read_restored_scaled_and_cleared() -> None:
    feedback = _native.Feedback(10)
    assert feedback.count == 10
    assert feedback.nbytes == 0
    feedback.restore("sent", 2, np.arange(5, dtype=np.float32))
    feedback.restore("result", 8, np.ones(2, np.float32))
    feedback.scale(0.5)
    begin, values = residual(feedback, "sent")
    assert begin == 2
    np.testing.assert_array_equal(values, np.arange(5) / 2)
    assert residual(feedback, "result")[0] == 8
    assert feedback.nbytes == 7 * 4
    values[:] = 7  # a copy
    np.testing.assert_array_equal(residual(feedback, "sent")[1], np.arange(5) / 2)
    feedback.clear()
    assert feedback.nbytes == 0


@pytest.mark.parametrize("begin, count", [(-1, 2), (9, 2), (0, 11)])
def test_residuals_that_do_not_fit_are_refused(begin: int, count: int) -> None:
    with pytest.raises(ValueError, match="do not fit a feedback of 10"):
        _native.Feedback(10).restore("sent", begin, np.zeros(count, np.float32))


def test_what_feedback_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        _native.Feedback(-1)
    with pytest.raises(ValueError, match="no stage 'received'"):
        _native.Feedback(1).read("received")
    with pytest.raises(ValueError, match="finite"):
        _native.Feedback(1).scale(float("inf"))


def test_feedback_where_it_cannot_work_is_refused() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x, whole_numbers = np.ones(8, np.float32), np.ones(8, np.int32)
        feedback = _native.Feedback(8)
        of_x = tensor(x, feedback=feedback)
        coded, exact = _native.Reduction(codec=bit8()), _native.Reduction()
        with pytest.raises(ValueError, match="'a': error feedback is for an allreduce"):
            engine.allreduce("a", [of_x], exact)
        with pytest.raises(ValueError, match="'a': error feedback is for an allreduce"):
            engine.allreduce("a", [of_x], _native.Reduction(ADASUM))
        with pytest.raises(ValueError, match="serves Sum and Average"):
            engine.allreduce("a", [of_x], _native.Reduction(MAX, codec=bit8()))
        with pytest.raises(ValueError, match="error feedback is for an allreduce"):
            engine.reducescatter("a", [of_x], coded)
        with pytest.raises(ValueError, match="error feedback is for an allreduce"):
            engine.allreduce("a", [tensor(x), tensor(whole_numbers, feedback=feedback)], coded)
        with pytest.raises(ValueError, match=r"feedback is of 7 elements, the tensor's shape is \(8,\)"):
            engine.allreduce("a", [tensor(x, feedback=_native.Feedback(7))], coded)
        with pytest.raises(ValueError, match="two tensors have one feedback"):
            engine.allreduce("a", [of_x, of_x], coded)

    on_ranks(1, program)


# ---- against the twin ----


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("count", [1, 100, 4096 * 3 + 1000])
def test_steps_have_the_bits_of_the_twin(size: int, count: int, shares_memory: bool) -> None:
    """Counts below one block, cut by ranks between blocks, and of several runs."""
    steps = [[numbers(rank, count, np.float32, seed) for rank in range(size)] for seed in range(3)]
    twin = oracle.ErrorFeedback(size, count, "bit8", BLOCK)
    want = [twin.allreduce(xs, AVERAGE) for xs in steps]

    def program(rank: int, engine: _native.Engine) -> tuple[list[Array], _native.Feedback]:
        feedback = _native.Feedback(count)
        return [step(engine, xs[rank], feedback, op=AVERAGE) for xs in steps], feedback

    outcomes = on_ranks(size, program, shares_memory)
    for got, _ in outcomes:
        np.testing.assert_array_equal(got, want)
    for rank, (_, feedback) in enumerate(outcomes):
        np.testing.assert_array_equal(residual(feedback, "sent")[1], twin.sent[rank])
    # Every owner holds its slice, and together they hold the tensor once.
    np.testing.assert_array_equal(sum(whole(feedback, "result") for _, feedback in outcomes), twin.result)
    held = sum(residual(feedback, "result")[1].size for _, feedback in outcomes)
    assert held == (count if size > 2 else 0)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes_and_factors_have_the_bits_of_the_twin(size: int, dtype: str) -> None:
    count = 5000
    factors = {"prescale": 0.3, "postscale": 1.7}
    steps = [[numbers(rank, count, DTYPES[dtype][1], seed) for rank in range(size)] for seed in range(3)]
    twin = oracle.ErrorFeedback(size, count, "bit8", BLOCK)
    want = [twin.allreduce(xs, SUM, **factors) for xs in steps]

    def program(rank: int, engine: _native.Engine) -> list[Array]:
        feedback = _native.Feedback(count)
        return [step(engine, xs[rank], feedback, **factors) for xs in steps]

    for got in on_ranks(size, program):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_array_equal(one, other)


# ---- what defines it ----


def drift(size: int, steps: int, with_feedback: bool) -> tuple[Array, Array]:
    """(sum of results - sum of true means, the residuals in units of the result), float64."""
    count = 3 * BLOCK * size + 5
    xs = [
        numbers(rank, count, np.float32) * np.geomspace(1e-3, 1, count).astype(np.float32)
        for rank in range(size)
    ]

    def program(rank: int, engine: _native.Engine) -> tuple[Array, _native.Feedback]:
        feedback = _native.Feedback(count)
        applied = np.zeros(count)
        for _ in range(steps):
            if not with_feedback:
                feedback.clear()
            applied += step(engine, xs[rank], feedback, op=AVERAGE)
        return applied, feedback

    outcomes = on_ranks(size, program)
    error = outcomes[0][0] - steps * np.mean(np.array(xs, np.float64), axis=0)
    pending = sum(
        whole(feedback, "sent").astype(np.float64) / size + whole(feedback, "result")
        for _, feedback in outcomes
    )
    return error, np.asarray(pending)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_is_applied_is_what_was_given_but_for_the_residuals(size: int) -> None:
    """After any number of steps: sum of results = sum of true means - residuals, up to float32 rounding.

    Without feedback the same gradient loses the same part in every step.
    """
    steps = 40
    error, pending = drift(size, steps, True)
    # In each step each of the ranks and the owner rounds a float32 sum of magnitude < 8 once or twice.
    assert np.abs(error + pending).max() < steps * (size + 2) * 8 * np.finfo(np.float32).eps
    assert np.abs(pending).max() > 1e-3
    lost, _ = drift(size, steps, False)
    assert np.linalg.norm(error) < np.linalg.norm(lost) / 10


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_step_that_overflows_leaves_finite_residuals(size: int, bad: float) -> None:
    count = 10 * BLOCK
    good = [numbers(rank, count, np.float32) for rank in range(size)]
    spoiled = [x.copy() for x in good]
    spoiled[1][40] = bad
    twin = oracle.ErrorFeedback(size, count, "bit8", BLOCK)
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


# ---- what else is going on ----


@pytest.mark.parametrize("size", [2, 3])
def test_residuals_do_not_care_what_is_fused_with_what(size: int) -> None:
    """Whatever shares a bucket in a step, in whatever order; tensors larger than a bucket."""
    counts = {"a": 5000, "b": 33, "c": 700, "d": 1}
    rounds = [["a", "b", "c", "d"], ["d", "c", "b", "a"], ["b", "d"], ["c", "a", "d"]]

    def run(threshold: int, one_by_one: bool) -> list[Any]:
        settings = _native.Settings()
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
                    if one_by_one:
                        engine.wait(waits.pop(name))
                for wait in waits.values():
                    engine.wait(wait)
                for name, x in xs.items():
                    got[name].append(x.tobytes())
            return got

        return on_ranks(size, program, settings=settings)

    reference = run(1 << 20, one_by_one=False)
    assert reference[0] == reference[1]
    assert run(4096, one_by_one=False) == reference
    assert run(0, one_by_one=False) == reference


def test_a_group_keeps_the_residuals_of_each_member() -> None:
    counts, size = [10, 500, 40], 3
    xs = [[numbers(rank, count, np.float32) for count in counts] for rank in range(size)]
    twins = [oracle.ErrorFeedback(size, count, "bit8", BLOCK) for count in counts]
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
    """It is a rank's own business: what counts is on the wire."""

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
    twin = oracle.ErrorFeedback(3, count, "bit8", BLOCK)
    twin.allreduce(xs)
    # The rank that has joined owns a slice of the result too, and its stand-in knows nothing of feedback.
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


# ---- ownership moves ----


def test_in_a_smaller_set_residuals_stay_with_who_still_encodes_the_elements() -> None:
    """4 ranks own 8 blocks each of 32; in a set of 3, they own 10, 11 and 11."""
    count, size = 32 * BLOCK, 4
    borders4 = [block * BLOCK for block in (0, 8, 16, 24, 32)]
    borders3 = [block * BLOCK for block in (0, 10, 21, 32)]

    def program(rank: int, engine: _native.Engine) -> None:
        three = add_set(engine, 0, 1, 2)
        in_sets(rank, engine, three)
        engine.wait(engine.barrier("end"))

    def in_sets(rank: int, engine: _native.Engine, three: int) -> None:
        feedback = _native.Feedback(count)
        step(engine, numbers(rank, count, np.float32), feedback)
        begin, before = residual(feedback, "result")
        assert (begin, begin + before.size) == (borders4[rank], borders4[rank + 1])
        feedback.restore("result", begin, np.full(before.size, 0.25, np.float32))
        if rank == 3:
            return
        sent = residual(feedback, "sent")[1]
        # What is encoded as contribution is zero: the result is what residuals of results are left.
        got = step(engine, -sent, feedback, process_set=three)
        want = np.zeros(count, np.float32)
        for owner in range(3):
            stays = slice(
                max(borders4[owner], borders3[owner]), min(borders4[owner + 1], borders3[owner + 1])
            )
            want[stays] = 0.25
        np.testing.assert_array_equal(got, want)
        begin, after = residual(feedback, "result")
        assert (begin, begin + after.size) == (borders3[rank], borders3[rank + 1])
        moved = (
            borders4[rank + 1] - borders4[rank] - int((want[borders3[rank] : borders3[rank + 1]] != 0).sum())
        )
        assert engine.counters(three)["residuals_dropped"] == moved
        assert engine.counters(0)["residuals_dropped"] == 0

    on_ranks(size, program)


def test_residuals_outlive_the_job() -> None:
    """A Feedback that was used by 2 ranks goes on in a job of 4: what was sent is still owed."""
    count = 100
    xs = [numbers(rank, count, np.float32) for rank in range(4)]
    feedbacks = [_native.Feedback(count) for _ in range(4)]
    on_ranks(2, lambda rank, engine: step(engine, xs[rank], feedbacks[rank]))
    twin = oracle.ErrorFeedback(4, count, "bit8", BLOCK)
    for rank in range(2):
        twin.sent[rank][:] = residual(feedbacks[rank], "sent")[1]
        assert twin.sent[rank].any()
    want = twin.allreduce(xs)
    for got in on_ranks(4, lambda rank, engine: step(engine, xs[rank], feedbacks[rank])):
        np.testing.assert_array_equal(got, want)
