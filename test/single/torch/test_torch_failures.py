"""A handled failure keeps no references: tensors in flight are freed at once, without garbage collection."""

# private: _start_exact: no compressor makes the core refuse only the second request of a group

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator

import pytest
import torch

import horovod.torch as hvd
from horovod.torch import handles, submission
from horovod.torch.gradients import wait_for_all
from horovod.torch.rounds import RoundsOperation


class Held:
    """An object that a frame of the failure holds."""


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def failing(seen: list[weakref.ref[Held]]) -> Callable[[], None]:
    def fail() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        raise ValueError("lost")

    return fail


def test_of_gradients() -> None:
    seen: list[weakref.ref[Held]] = []
    with contextlib.suppress(ValueError):
        wait_for_all([failing(seen), lambda: None, failing(seen)])
    assert len(seen) == 2 and all(ref() is None for ref in seen)


def test_of_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[weakref.ref[Held]] = []
    fail = failing(seen)
    monkeypatch.setattr(handles, "synchronize", lambda handle: fail())
    with contextlib.suppress(ValueError):
        handles.complete_all([1, 2])
    assert len(seen) == 2 and all(ref() is None for ref in seen)


def test_of_a_compressors_rounds() -> None:
    """The operation keeps the failure until it is waited for; its frames hold the operation."""
    operation = object.__new__(RoundsOperation)
    ref = weakref.ref(operation)

    def advance(self: RoundsOperation) -> None:
        try:
            raise ValueError("lost")
        except ValueError as error:
            self._failure = error

    advance(operation)
    with pytest.raises(ValueError, match="lost"):
        operation.results()
    del operation
    assert ref() is None


@pytest.mark.usefixtures("alone")
def test_a_started_request_keeps_its_tensors_though_the_next_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("no more")

    def route(tensor: torch.Tensor, *_: object) -> object:
        return submission._start_exact if tensor.is_floating_point() else refused

    monkeypatch.setattr(submission, "_route", route)
    tensor = torch.ones(4)
    seen = weakref.ref(tensor)
    with pytest.raises(RuntimeError, match="no more"):
        hvd.grouped_allreduce_([tensor, torch.ones(4, dtype=torch.int64)], name="half")
    del tensor
    assert seen() is not None
