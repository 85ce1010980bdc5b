"""Compressors that talk in rounds: sums are right, whoever waits for what, and in which order."""

import pytest
import torch
from api_cases import assert_usable

import horovod.torch as hvd
from horovod.torch.compression import Compressor


class Halves(Compressor):
    """Sums exactly, in three rounds of a half, a half and a single number."""

    combine = "rounds"

    @staticmethod
    def rounds(tensor, state):
        state["steps"] = state.get("steps", 0) + 1
        flat = tensor.reshape(-1)
        left = yield flat[: flat.numel() // 2]
        right = yield flat[flat.numel() // 2 :]
        ranks = yield torch.ones(1)
        assert ranks == int(ranks) and ranks >= 1
        return torch.cat([left, right]).reshape(tensor.shape)


def ones(rank: int, *shape: int) -> torch.Tensor:
    return torch.full(shape or (4, 6), 2.0**rank)


@pytest.fixture
def total(size: int) -> float:
    return float(2**size - 1)


def test_average_sum_and_factors(rank: int, size: int, total: float) -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = ones(rank).to(dtype)
        summed = hvd.allreduce(x, name="x", op=hvd.Sum, compression=Halves)
        assert summed.dtype == dtype and torch.equal(summed, torch.full((4, 6), total, dtype=dtype))
        assert torch.equal(hvd.allreduce(x, name="x", compression=Halves), (summed.double() / size).to(dtype))
    scaled = hvd.allreduce(
        ones(rank), op=hvd.Average, prescale_factor=0.5, postscale_factor=8.0, compression=Halves
    )
    assert torch.equal(scaled, torch.full((4, 6), total / size * 4))
    x = ones(rank, 6, 4).t()  # not contiguous
    assert hvd.allreduce_(x, op=hvd.Sum, compression=Halves) is x and torch.all(x == total)
    assert torch.equal(hvd.allreduce(torch.tensor([rank]), op=hvd.Sum, compression=Halves),
                       torch.tensor([size * (size - 1) // 2]))  # fmt: skip
    for op in (hvd.Min, hvd.Max, hvd.Product):
        with pytest.raises(ValueError, match=r"Halves.*use Sum or Average"):
            hvd.allreduce(x, op=op, compression=Halves)


def test_groups(rank: int, total: float) -> None:
    members = [ones(rank), ones(rank, 3), torch.tensor([7 * (rank == 0)]), ones(rank, 5).double()]
    reduced = hvd.grouped_allreduce(members, name="group", op=hvd.Sum, compression=Halves)
    for result, member in zip(reduced, members, strict=True):
        assert result.dtype == member.dtype and result.shape == member.shape
        assert torch.all(result == (total if member.is_floating_point() else 7))
    handle = hvd.grouped_allreduce_async_(members, name="group", op=hvd.Sum, compression=Halves)
    assert [torch.equal(*pair) for pair in zip(hvd.synchronize(handle), reduced, strict=True)] == [True] * 4


def test_gradients(rank: int, total: float) -> None:
    x = ones(rank).requires_grad_()
    hvd.allreduce(x, op=hvd.Sum, compression=Halves).backward(ones(rank))
    assert torch.all(x.grad == total)


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
    """Some ranks wait for the rounds, the others first for something that comes after them."""
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
        # The others have joined, or will: they stand in with zeros.
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


def test_disagreement_is_an_error_on_all_ranks(rank: int) -> None:
    choices = [hvd.Compression.none, Halves, hvd.Compression.powersgd(rank=1), hvd.Compression.topk]
    for mine, others in [(0, 1), (1, 2), (2, 3), (3, 1)]:
        compression = choices[mine] if rank == 0 else choices[others]
        with pytest.raises(hvd.HorovodInternalError, match="disagreed upon"):
            hvd.allreduce(torch.randn(40, 40), name="disagreed upon", compression=compression)
    assert_usable()


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
    with pytest.raises(hvd.HorovodInternalError, match=r"short: .*shape \[1, 6\] instead of.*\[4, 6\]"):
        hvd.synchronize(short)
    with pytest.raises(ArithmeticError, match="no second round"):
        hvd.synchronize(bad)
    with pytest.raises(ValueError, match=r"odd, round 0 of its compressor: expected a torch\.Tensor"):
        hvd.allreduce(ones(rank), name="odd", compression=Odd)
    assert_usable()
