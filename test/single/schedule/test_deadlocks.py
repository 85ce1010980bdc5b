"""Ranks that would wait for each other in a circle: one may continue without an operation."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from ranks import WORLDS, add_set, on_ranks, submit
from refusals import refused

from horovod import _native
from horovod.common.exceptions import WrongArgument


class Asked:
    """An allreduce of ones, which keeps its array alive."""

    def __init__(self, engine: _native.Engine, name: str, process_set: int = 0) -> None:
        self.engine = engine
        self.array = np.ones(3, np.float32)
        self.handle = submit(engine, name, self.array, process_set)

    def comes(self) -> bool:
        return self.engine.wait_or_yield(self.handle)

    def sum(self) -> Any:
        self.engine.wait(self.handle)
        return self.array[0]


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_each_has_something_that_the_others_will_ask_for_later(size: int, shares_memory: bool) -> None:
    """As after backward passes through different parameters: step() requests the others' gradients."""

    def program(rank: int, engine: _native.Engine) -> bool:
        mine, common = Asked(engine, f"of {rank}"), Asked(engine, "of all")
        came = mine.comes()
        assert common.comes() and common.sum() == size
        others = [Asked(engine, f"of {other}") for other in range(size) if other != rank]
        assert [asked.sum() for asked in (mine, *others)] == [size] * size
        return came

    # A rank that has yielded may serve the others before they yield.
    assert False in on_ranks(size, program, shares_memory)


def test_a_caller_that_cannot_yield_closes_the_circle() -> None:
    """One rank requests a metric after its backward pass, the other before."""

    def program(rank: int, engine: _native.Engine) -> None:
        if rank == 0:
            gradient = Asked(engine, "gradient")
            assert not gradient.comes()
            assert Asked(engine, "metric").sum() == 2
        else:
            assert Asked(engine, "metric").sum() == 2
            gradient = Asked(engine, "gradient")
            assert gradient.comes()
        assert gradient.sum() == 2

    on_ranks(2, program)


def test_callers_that_look_now_and_then() -> None:
    """As callers that poll operations of several requests."""

    def program(rank: int, engine: _native.Engine) -> None:
        mine = Asked(engine, f"of {rank}")
        while not engine.must_yield(mine.handle) and not engine.has_result(mine.handle):
            engine.note_blocked(mine.handle, True)
            time.sleep(0.001)
        assert Asked(engine, f"of {1 - rank}").sum() == mine.sum() == 2

    on_ranks(2, program)


def test_a_circle_through_several_process_sets() -> None:
    """Rank 0 waits for 1, which waits for 2, which waits for 0: only 0 may yield."""

    def program(rank: int, engine: _native.Engine) -> None:
        sets = [add_set(engine, 0, 1), add_set(engine, 1, 2), add_set(engine, 0, 2)]
        first, then = {0: (0, 2), 1: (1, 0), 2: (2, 1)}[rank]
        asked = Asked(engine, f"in set {first}", sets[first])
        if rank == 0:
            assert not asked.comes()
        else:
            assert asked.sum() == 2
        assert Asked(engine, f"in set {then}", sets[then]).sum() == 2
        if rank == 0:
            assert asked.sum() == 2
        engine.wait(engine.barrier("nobody leaves before"))

    on_ranks(3, program)


def test_who_is_only_late_is_waited_for() -> None:
    """Both others report several times that they are blocked, but the late rank waits for no rank."""

    def program(rank: int, engine: _native.Engine) -> bool:
        if rank == 1:
            time.sleep(0.3)
        asked = Asked(engine, "gradient")
        return asked.comes() and bool(asked.sum() == 3)

    assert on_ranks(3, program) == [True] * 3


def test_who_does_not_wait_for_what_is_done() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        asked = Asked(engine, "gradient")
        assert asked.comes() and asked.comes() and not engine.must_yield(asked.handle)
        assert asked.sum() == 2
        with refused(WrongArgument, "handle_unknown"):
            asked.comes()

    on_ranks(2, program)
