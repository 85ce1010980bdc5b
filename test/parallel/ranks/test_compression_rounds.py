"""Compressors with several rounds: sums are right in every order of waiting."""

import pytest
import torch
from compressors import Halves
from contract import assert_usable
from refusals import refused

import horovod.torch as hvd
from horovod.torch import errors
from horovod.torch.compression import Compressor


def ones(rank: int, *shape: int) -> torch.Tensor:
    return torch.full(shape or (4, 6), 2.0**rank)


@pytest.fixture
def total(size: int) -> float:
    return float(2**size - 1)


@pytest.mark.parametrize("mirrored", ["waits", "starts", "both"])
def test_ranks_may_start_and_wait_in_different_orders(mirrored: str, rank: int, total: float) -> None:
    names = [f"operation {i}" for i in range(5)]
    compressions = {name: Halves if i % 2 == 0 else hvd.Compression.none for i, name in enumerate(names)}
    starts = names[:: -1 if rank % 2 and mirrored != "waits" else 1]
    waits = names[:: -1 if rank % 2 and mirrored != "starts" else 1]
    handles = {
        name: hvd.allreduce_async(ones(rank), name=name, op=hvd.Sum, compression=compressions[name])
        for name in starts
    }
    for name in waits:
        assert torch.all(hvd.synchronize(handles[name]) == total)


def test_what_else_is_waited_for_keeps_rounds_going(rank: int, size: int, total: float) -> None:
    """Some ranks wait for the rounds, the others first for an operation after them."""
    for other in (
        hvd.barrier,
        lambda: hvd.broadcast(torch.ones(3), 0, name="b"),
        lambda: hvd.allgather(torch.ones(3), name="g"),
        lambda: hvd.allreduce(torch.ones(3), name="r"),
        lambda: hvd.broadcast_object("object", 0),
    ):
        handle = hvd.allreduce_async(ones(rank), name="rounds", op=hvd.Sum, compression=Halves)
        if rank % 2:
            other()
        assert torch.all(hvd.synchronize(handle) == total)
        if not rank % 2:
            other()


def test_polling_gets_there(rank: int, total: float) -> None:
    handle = hvd.allreduce_async(ones(rank), name="polled", op=hvd.Sum, compression=Halves)
    while not hvd.poll(handle):
        pass
    assert torch.all(hvd.synchronize(handle) == total)


def test_join_finishes_what_was_started(rank: int, size: int, total: float) -> None:
    handle = hvd.allreduce_async(ones(rank), name="before join", op=hvd.Sum, compression=Halves)
    if rank == size - 1:
        result = hvd.synchronize(handle)
        # The others have joined, or will: they contribute zeros.
        alone = hvd.allreduce(ones(0), name="alone", op=hvd.Sum, compression=hvd.Compression.powersgd)
        assert torch.all(alone >= 1)
    assert hvd.join() >= 0
    if rank != size - 1:
        result = hvd.synchronize(handle)
    assert torch.all(result == total)


def test_states_are_kept_by_name(rank: int) -> None:
    seen = []

    class Watching(Halves):
        @staticmethod
        def rounds(tensor, state):
            seen.append(dict(state))
            return Halves.rounds(tensor, state)

    for name in ("a", "b", "a", None, None):
        hvd.allreduce(ones(rank), name=name, compression=Watching)
    assert [state.get("steps", 0) for state in seen] == [0, 0, 1, 0, 0]
    hvd.grouped_allreduce([ones(rank), ones(rank)], name="a", compression=Watching)
    assert [state.get("steps", 0) for state in seen[5:]] == [2, 0]


def test_a_failure_belongs_to_its_own_operation(rank: int, total: float) -> None:
    class Failing(Compressor):
        combine = "rounds"

        @staticmethod
        def rounds(tensor, state):
            yield tensor
            raise ArithmeticError("no second round")

    class Short(Compressor):
        combine = "rounds"

        @staticmethod
        def rounds(tensor, state):
            total = yield tensor
            return total[:1]

    class Odd(Compressor):
        combine = "rounds"

        @staticmethod
        def rounds(tensor, state):
            return (yield "text")

    good = hvd.allreduce_async(ones(rank), name="good", op=hvd.Sum, compression=Halves)
    bad = hvd.allreduce_async(ones(rank), name="bad", compression=Failing)
    short = hvd.allreduce_async(ones(rank), name="short", compression=Short)
    assert torch.all(hvd.synchronize(good) == total)
    with refused(errors.wrong_rounds, tensor="allreduce.short", got="shape [1, 6]", shape=[4, 6]):
        hvd.synchronize(short)
    with pytest.raises(ArithmeticError, match="no second round"):
        hvd.synchronize(bad)
    with refused(errors.not_a_tensor, tensor="allreduce.odd, round 0 of its compressor", got="str"):
        hvd.allreduce(ones(rank), name="odd", compression=Odd)
    assert_usable()
