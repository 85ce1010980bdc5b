"""Feedback as a Python object, and the residuals of elements that another rank now encodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from feedback_twin import BLOCK, CODEC, ErrorFeedback, bit8, each, residual, step, whole
from numpy.typing import NDArray
from ranks import ADASUM, MAX, add_set, numbers, on_ranks, predictable, tensor
from refusals import refused

from horovod import _native
from horovod.common.exceptions import WrongArgument

Array = NDArray[Any]


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
    place = {"begin": begin, "end": begin + count, "count": 10}
    with refused(WrongArgument, "feedback_does_not_fit", **place):
        _native.Feedback(10).restore("sent", begin, np.zeros(count, np.float32))


def test_what_feedback_cannot_be_is_refused() -> None:
    with refused(WrongArgument, "feedback_of_negative_size", count=-1):
        _native.Feedback(-1)
    with refused(WrongArgument, "stage_unknown", value="received"):
        _native.Feedback(1).read("received")
    with refused(WrongArgument, "feedback_factor_not_finite"):
        _native.Feedback(1).scale(float("inf"))


def test_feedback_where_it_cannot_work_is_refused() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x, whole_numbers = np.ones(8, np.float32), np.ones(8, np.int32)
        feedback = _native.Feedback(8)
        of_x = tensor(x, feedback=feedback)
        coded, exact = _native.Reduction(codec=bit8()), _native.Reduction()
        mixed = [tensor(x), tensor(whole_numbers, feedback=feedback)]
        of_max = _native.Reduction(MAX, codec=bit8())
        for code, call in (
            ("feedback_misplaced", lambda: engine.allreduce("a", [of_x], exact)),
            ("feedback_misplaced", lambda: engine.allreduce("a", [of_x], _native.Reduction(ADASUM))),
            ("codec_of_other_op", lambda: engine.allreduce("a", [of_x], of_max)),
            ("feedback_misplaced", lambda: engine.reducescatter("a", [of_x], coded)),
            ("feedback_misplaced", lambda: engine.allreduce("a", mixed, coded)),
            ("feedback_shared", lambda: engine.allreduce("a", [of_x, of_x], coded)),
        ):
            with refused(WrongArgument, code, tensor="a"):
                call()
        with refused(WrongArgument, "feedback_of_other_size", tensor="a", count=7, shape="(8,)"):
            engine.allreduce("a", [tensor(x, feedback=_native.Feedback(7))], coded)

    on_ranks(1, program)


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
        # The encoded contribution is zero: the result consists of the remaining residuals of results.
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
    """A Feedback that was used by 2 ranks continues in a job of 4: residuals of sent values stay."""
    count = 100
    xs = [numbers(rank, count, np.float32) for rank in range(4)]
    feedbacks = [_native.Feedback(count) for _ in range(4)]
    on_ranks(2, lambda rank, engine: step(engine, xs[rank], feedbacks[rank]))
    twin = ErrorFeedback(each(4), count, CODEC)
    for rank in range(2):
        twin.sent[rank][:] = residual(feedbacks[rank], "sent")[1]
        assert twin.sent[rank].any()
    want = twin.allreduce(xs)
    for got in on_ranks(4, lambda rank, engine: step(engine, xs[rank], feedbacks[rank])):
        np.testing.assert_array_equal(got, want)


def test_hosts_keep_what_they_lose_of_their_sums() -> None:
    """2 hosts x 2 ranks, one quantisation: each carrier keeps that of its half of the host's sum."""
    count = 10 * BLOCK
    steps = [[numbers(rank, count, np.float32, seed) for rank in range(4)] for seed in range(3)]
    twin = ErrorFeedback([[0, 1], [2, 3]], count, CODEC)
    want = [twin.allreduce(xs) for xs in steps]

    def program(rank: int, engine: _native.Engine) -> tuple[list[Array], _native.Feedback]:
        feedback = _native.Feedback(count)
        return [step(engine, xs[rank], feedback) for xs in steps], feedback

    outcomes = on_ranks(4, program, settings=predictable("hierarchical"), hosts=[0, 0, 1, 1])
    for rank, (got, feedback) in enumerate(outcomes):
        np.testing.assert_array_equal(got, want)
        begin, held = residual(feedback, "sent")
        assert (begin, held.size) == ((rank % 2) * count // 2, count // 2)
        np.testing.assert_array_equal(held, twin.sent[rank // 2][begin : begin + held.size])


def test_hosts_own_slices_of_slices() -> None:
    """3 hosts x 2 ranks, two quantisations: carrier c of host h owns third h of half c."""
    count = 12 * BLOCK
    steps = [[numbers(rank, count, np.float32, seed) for rank in range(6)] for seed in range(3)]
    twin = ErrorFeedback([[0, 1], [2, 3], [4, 5]], count, CODEC)
    want = [twin.allreduce(xs) for xs in steps]

    def program(rank: int, engine: _native.Engine) -> tuple[list[Array], _native.Feedback]:
        feedback = _native.Feedback(count)
        return [step(engine, xs[rank], feedback) for xs in steps], feedback

    outcomes = on_ranks(6, program, settings=predictable("hierarchical"), hosts=[0, 0, 1, 1, 2, 2])
    for rank, (got, feedback) in enumerate(outcomes):
        np.testing.assert_array_equal(got, want)
        begin, held = residual(feedback, "result")
        assert (begin, held.size) == ((rank % 2) * count // 2 + rank // 2 * count // 6, count // 6)
    np.testing.assert_array_equal(sum(whole(feedback, "result") for _, feedback in outcomes), twin.result)


def test_what_was_sent_stays_owed_while_a_route_has_a_rank_carry_a_part() -> None:
    count = 10 * BLOCK
    feedbacks = [_native.Feedback(count) for _ in range(4)]
    owed = np.ones(count, np.float32)

    def program(rank: int, engine: _native.Engine) -> tuple[Array, int]:
        got = step(engine, np.zeros(count, np.float32), feedbacks[rank])
        return got, engine.counters()["residuals_dropped"]

    for feedback in feedbacks:
        feedback.restore("sent", 0, owed)
    # Two hosts contribute: for each half, one rank per host sends the sum and adds its residual.
    outcomes = on_ranks(4, program, settings=predictable("hierarchical"), hosts=[0, 0, 1, 1])
    for got, dropped in outcomes:
        np.testing.assert_array_equal(got, 2 * owed)
        assert dropped == 0
    # Residuals of the other halves are added once each rank contributes the whole tensor.
    for got, dropped in on_ranks(4, program):
        np.testing.assert_array_equal(got, 2 * owed)
        assert dropped == 0
