"""Rank 0's answers about gradients that a rank lacks at the end of its backward pass."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from ranks import WORLDS, on_ranks, submit
from refusals import refused

from horovod import _native
from horovod.common.exceptions import WrongArgument
from horovod.common.gradient_life import Decision


def ask(engine: _native.Engine, rank: int, *names: str, has_part: bool = False) -> int:
    return engine.missing(f"question of {rank}", list(names), [has_part] * len(names))


def answers(engine: _native.Engine, handle: int) -> list[int]:
    return list(engine.wait(handle).sizes)


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_a_rank_takes_part_in_what_another_has_started(size: int, shares_memory: bool) -> None:
    def program(rank: int, engine: _native.Engine) -> bool:
        values = np.full(3, float(rank == 0), np.float32)
        if rank != 0:
            assert answers(engine, ask(engine, rank, "a")) == [Decision.START]
        result = engine.wait(submit(engine, "a", values))
        assert values.tolist() == [1.0] * 3
        return result.is_completed

    assert on_ranks(size, program, shares_memory) == [True] * size


@pytest.mark.parametrize("size", [2, 3])
def test_nobody_has_what_all_lack(size: int) -> None:
    def program(rank: int, engine: _native.Engine) -> list[int]:
        return answers(engine, ask(engine, rank, "a", "b"))

    assert on_ranks(size, program, True) == [[Decision.NOBODY_HAS_IT] * 2] * size


def test_a_part_that_some_rank_has_is_started_by_all() -> None:
    def program(rank: int, engine: _native.Engine) -> list[int]:
        return answers(engine, ask(engine, rank, "group", has_part=rank == 1))

    assert on_ranks(3, program, True) == [[Decision.START]] * 3


def test_a_rank_that_has_joined_lacks_everything() -> None:
    def program(rank: int, engine: _native.Engine) -> list[int]:
        if rank == 0:
            engine.wait(engine.join())
            return [Decision.NOBODY_HAS_IT]
        decisions = answers(engine, ask(engine, rank, "a"))
        engine.wait(engine.join())
        return decisions

    assert on_ranks(2, program, True) == [[Decision.NOBODY_HAS_IT]] * 2


def test_who_waits_elsewhere_for_the_asking_rank_lets_it_go_on() -> None:
    def program(rank: int, engine: _native.Engine) -> list[int]:
        decisions: list[int] = [Decision.NOT_YET]
        if rank == 0:
            handle = ask(engine, rank, "a")
            engine.wait_or_yield(handle)
            decisions = answers(engine, handle)
        engine.wait(engine.barrier("before a"))
        values = np.ones(2, np.float32)
        assert not engine.wait(submit(engine, "a", values)).is_completed
        return decisions

    assert on_ranks(2, program, True) == [[Decision.NOT_YET]] * 2


def test_others_that_wait_need_no_answer_to_the_rest_of_a_question() -> None:
    """Rank 0 waits for "a" before it can answer about "b"."""

    def program(rank: int, engine: _native.Engine) -> list[int]:
        values = np.ones(2, np.float32)
        if rank == 0:
            engine.wait(submit(engine, "a", values))
            return answers(engine, ask(engine, rank, "b"))
        assert answers(engine, ask(engine, rank, "a", "b")) == [Decision.START, Decision.ASK_AGAIN]
        engine.wait(submit(engine, "a", values))
        time.sleep(0.01)
        return answers(engine, ask(engine, rank, "b"))

    assert on_ranks(2, program, True) == [[Decision.NOBODY_HAS_IT]] * 2


@pytest.mark.parametrize("has_part", [False, True])
def test_the_first_ends_the_question_if_all_ask_about_it(has_part: bool) -> None:
    """Only rank 1 asks about "b"; rank 0 may have a part of "all"."""

    def program(rank: int, engine: _native.Engine) -> list[int]:
        names = ["all", "b"] if rank == 1 else ["all"]
        parts = [has_part and rank == 0, False][: len(names)]
        return answers(engine, engine.missing(f"question of {rank}", names, parts, ends=True))

    decision = Decision.START if has_part else Decision.NOBODY_HAS_IT
    assert on_ranks(2, program, True) == [[decision], [decision, Decision.NOBODY_HAS_IT]]


def test_each_gradient_says_whether_there_is_a_part() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        with refused(WrongArgument, "parts_do_not_fit", tensor="question"):
            engine.missing("question", ["a"], [])

    on_ranks(1, program, True)


def test_a_rank_in_no_pass_is_not_waited_for() -> None:
    """Rank 0 reaches rank 1's pass, has no such optimizer, and never asks."""

    def program(rank: int, engine: _native.Engine) -> list[int]:
        engine.note_pass(True)
        handle = submit(engine, "anchor", np.ones(2, np.float32))
        decisions: list[int] = [Decision.NOT_YET]
        if rank == 1:
            decisions = answers(engine, engine.missing("question", ["b"], [False], anchor="anchor"))
        else:
            time.sleep(0.05)
        engine.note_pass(False)
        engine.wait(handle)
        if rank == 0:
            assert finished.wait(10)  # the training thread does not call the engine
        else:
            finished.set()
        return decisions

    finished = threading.Event()
    assert on_ranks(2, program, True) == [[Decision.NOT_YET]] * 2


def test_an_operation_of_a_later_pass_does_not_answer_a_question() -> None:
    """Rank 0 starts "b" in the pass after the one about which rank 1 asks."""

    def program(rank: int, engine: _native.Engine) -> list[list[int]]:
        engine.note_pass(True)
        handle = submit(engine, "anchor", np.ones(2, np.float32))
        decisions = [answers(engine, engine.missing(f"question of {rank}", ["b"], [False], anchor="anchor"))]
        engine.wait(handle)
        engine.note_pass(False)

        engine.note_pass(True)
        engine.wait(submit(engine, "anchor", np.ones(2, np.float32)))
        if rank == 0:
            engine.note_pass(False)
            engine.note_pass(True)
            handle = submit(engine, "b", np.ones(2, np.float32))
            time.sleep(0.02)
            later.set()
        else:
            assert later.wait(10)
            decisions.append(answers(engine, engine.missing("question", ["b"], [False], anchor="anchor")))
            engine.note_pass(False)
            handle = submit(engine, "b", np.ones(2, np.float32))
        assert not engine.wait(handle).is_completed
        return decisions

    later = threading.Event()
    nobody = [Decision.NOBODY_HAS_IT]
    assert on_ranks(2, program, True) == [[nobody], [nobody, [Decision.NOT_YET]]]
