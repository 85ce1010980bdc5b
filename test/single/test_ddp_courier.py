"""Who carries reductions of host memory beside the training: their order, and what becomes of failures.

In a group of one, whose messages arrive at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from horovod.torch.ddp.agreement import RanksDisagree
from horovod.torch.ddp.courier import HostCourier
from horovod.torch.ddp.exchange import Messages, Operation


class Alone:
    """The connections of a group of one."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()


class Noted:
    """An exchange of two steps that notes what is done, and does `fails` by raising an error."""

    is_last, is_scattered = True, False
    steps, message_bytes, result_bytes = 2, 16, 32

    def __init__(self, name: str, notes: list[str], fails: str = "") -> None:
        self.name, self.notes, self.fails = name, notes, fails

    def _note(self, what: str, step: int) -> None:
        if what == self.fails:
            raise ArithmeticError(f"{self.name} cannot {what}")
        self.notes.append(f"{what} {self.name}{step}")

    def pack(self, messages: Messages, step: int) -> None:
        self._note("pack", step)
        (message,) = messages
        message.fill_(step + 1)

    def reduce(self, arrived: Messages, result: torch.Tensor, step: int) -> None:
        self._note("reduce", step)
        assert [message.tolist() for message in arrived] == [[step + 1] * 16]
        result.fill_(step + 11)

    def unpack(self, results: Messages, step: int) -> None:
        self._note("unpack", step)
        assert [result.tolist() for result in results] == [[step + 11] * 32]


@pytest.fixture
def groups() -> Alone:
    return Alone()


@pytest.fixture
def courier(groups: Alone) -> Iterator[HostCourier]:
    courier = HostCourier(groups)  # type: ignore[arg-type]
    yield courier
    courier.close()
    assert groups.closed.is_set() and courier.is_idle


def test_operations_are_carried_out_in_the_order_of_their_start(courier: HostCourier) -> None:
    notes: list[str] = []

    def operation(name: str) -> Operation:
        yield Noted(name, notes)
        notes.append(f"end {name}")

    for future in [courier.start(operation(name)) for name in "ab"]:
        future.wait()
    for name in "ab":
        mine = [note for note in notes if name in note.split()[1]]
        assert sorted(mine[:-1]) == sorted(
            f"{do} {name}{i}" for do in ("pack", "reduce", "unpack") for i in (0, 1)
        )
        assert mine[-1] == f"end {name}"
    for what in ("pack", "reduce", "unpack", "end"):
        names = [note.split()[1][0] for note in notes if note.startswith(what)]
        assert names == sorted(names)


@pytest.mark.parametrize("what", ["pack", "reduce", "unpack"])
def test_a_failure_ends_what_is_under_way_and_all_that_comes_later(
    courier: HostCourier, groups: Alone, what: str
) -> None:
    notes: list[str] = []
    closed: list[str] = []

    def operation(name: str, fails: str = "") -> Operation:
        try:
            yield Noted(name, notes, fails)
        except GeneratorExit:
            closed.append(name)
            raise

    futures = [courier.start(operation("a", what)), *_started(courier, operation, "bc")]
    for future in futures:
        with pytest.raises(ArithmeticError, match=f"a cannot {what}"):
            future.wait()
    with pytest.raises(ArithmeticError, match=f"a cannot {what}"):
        courier.start(operation("d"))
    assert "a" in closed and not any(note.startswith("unpack") for note in notes)
    assert groups.closed.wait(20), "other ranks hear of it"


def _started(courier: HostCourier, operation: Any, names: str) -> Iterator[Any]:
    """Those that can be: the first may have failed already."""
    for name in names:
        try:
            yield courier.start(operation(name))
        except ArithmeticError:
            return


def test_ranks_that_disagree_do_so_about_one_operation(courier: HostCourier) -> None:
    def refused() -> Operation:
        raise RanksDisagree("shapes")
        yield

    def fine() -> Operation:
        yield Noted("a", [])

    first, second = courier.start(refused()), courier.start(fine())
    with pytest.raises(RanksDisagree, match="shapes"):
        first.wait()
    second.wait()


def test_nothing_is_started_after_the_end(groups: Alone) -> None:
    courier = HostCourier(groups)  # type: ignore[arg-type]
    courier.close()
    with pytest.raises(RuntimeError, match="was closed"):
        courier.start(operation=(_ for _ in ()))
