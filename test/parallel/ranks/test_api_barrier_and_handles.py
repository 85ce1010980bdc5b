"""barrier, poll, synchronize, names: what is promised about operations in flight."""

import random
import time
from collections.abc import Callable

import pytest
import torch
from api_cases import assert_usable

import horovod.torch as hvd

Start = Callable[[torch.Tensor, str | None], int]
COLLECTIVES: dict[str, Start] = {
    "allreduce": lambda tensor, name: hvd.allreduce_async(tensor, name=name),
    "allreduce_": lambda tensor, name: hvd.allreduce_async_(tensor.clone(), name=name),
    "allgather": lambda tensor, name: hvd.allgather_async(tensor, name),
    "broadcast": lambda tensor, name: hvd.broadcast_async(tensor, 0, name),
    "broadcast_": lambda tensor, name: hvd.broadcast_async_(tensor.clone(), 0, name),
    "alltoall": lambda tensor, name: hvd.alltoall_async(tensor, None, name),
    "reducescatter": lambda tensor, name: hvd.reducescatter_async(tensor, name),
    "grouped_allreduce": lambda tensor, name: hvd.grouped_allreduce_async([tensor] * 2, name=name),
    "grouped_allgather": lambda tensor, name: hvd.grouped_allgather_async([tensor] * 2, name),
    "grouped_reducescatter": lambda tensor, name: hvd.grouped_reducescatter_async([tensor] * 2, name),
}


@pytest.fixture
def tensor(size: int) -> torch.Tensor:
    return torch.ones(size, 3)


@pytest.mark.parametrize("what", COLLECTIVES)
@pytest.mark.parametrize("first", ["first rank", "last rank"])
def test_name_in_flight(what: str, first: str, tensor: torch.Tensor, rank: int, size: int) -> None:
    """A second operation under a name in flight is a ValueError on that rank, and nobody else notices."""
    start = COLLECTIVES[what]
    early = 0 if first == "first rank" else size - 1
    if rank == early:
        handle = start(tensor, "twice")
        for _ in range(10):
            with pytest.raises((torch.FatalError, ValueError)) as raised:
                start(tensor, "twice")
            assert isinstance(raised.value, ValueError)
    hvd.barrier()
    if rank != early:
        handle = start(tensor, "twice")
    assert hvd.synchronize(handle) is not None
    assert hvd.synchronize(start(tensor, "twice")) is not None, "the name is free again"


@pytest.mark.parametrize("what", COLLECTIVES)
def test_name_is_free_after_synchronize(what: str, tensor: torch.Tensor) -> None:
    for _ in range(5):
        assert hvd.synchronize(COLLECTIVES[what](tensor, "again")) is not None


def test_one_name_for_different_operations(tensor: torch.Tensor, rank: int) -> None:
    """The operation is part of the name on the wire."""
    kinds = ["allreduce", "allgather", "broadcast", "alltoall", "reducescatter"]
    random.Random(rank).shuffle(kinds)
    handles = [COLLECTIVES[kind](tensor, "shared") for kind in kinds]
    assert all(hvd.synchronize(handle) is not None for handle in handles)


@pytest.mark.parametrize("what", COLLECTIVES)
def test_poll(what: str, tensor: torch.Tensor, rank: int) -> None:
    """False while another rank is missing; True when synchronize will not wait; then ValueError."""
    if rank == 0:
        handle = COLLECTIVES[what](tensor, "polled")
        for _ in range(5):
            assert hvd.poll(handle) is False
    hvd.barrier()
    if rank > 0:
        handle = COLLECTIVES[what](tensor, "polled")
    end = time.monotonic() + 10
    while not hvd.poll(handle):
        assert time.monotonic() < end
    assert hvd.poll(handle) is True
    assert hvd.synchronize(handle) is not None
    with pytest.raises(ValueError):
        hvd.poll(handle)
    assert hvd.synchronize(handle) is None


@pytest.mark.parametrize("handle", [-1, 1 << 30])
def test_unknown_handles(handle: int) -> None:
    with pytest.raises(ValueError):
        hvd.poll(handle)
    assert hvd.synchronize(handle) is None


def test_handles_are_different_ints(tensor: torch.Tensor) -> None:
    handles = [start(tensor, f"{what}.{i}") for what, start in COLLECTIVES.items() for i in range(3)]
    assert all(type(handle) is int for handle in handles) and len(set(handles)) == len(handles)
    for handle in handles:
        hvd.synchronize(handle)


def test_barrier_waits_for_the_slowest(rank: int, size: int) -> None:
    for slow in range(size):
        hvd.barrier()
        started = time.monotonic()
        if rank == slow:
            time.sleep(0.1)
        hvd.barrier()
        assert time.monotonic() - started > 0.09 or rank == slow


def test_barrier_returns_nothing_and_takes_a_set() -> None:
    assert hvd.barrier() is None
    assert hvd.barrier(hvd.global_process_set) is None
    assert hvd.barrier(process_set=hvd.global_process_set) is None


@pytest.mark.parametrize("what", COLLECTIVES)
def test_barrier_while_an_operation_of_one_rank_is_pending(
    what: str, tensor: torch.Tensor, rank: int, size: int
) -> None:
    """Calls need not come in the same order everywhere, barriers included."""
    for early in range(size):
        if rank == early:
            handle = COLLECTIVES[what](tensor, "pending")
        hvd.barrier()
        if rank != early:
            handle = COLLECTIVES[what](tensor, "pending")
        assert hvd.synchronize(handle) is not None


def test_barrier_with_unnamed_operations_outstanding(rank: int, size: int) -> None:
    handles = [hvd.allreduce_async(torch.full((100,), float(rank)), op=hvd.Sum) for _ in range(20)]
    hvd.barrier()
    handles += [hvd.allgather_async(torch.tensor([rank])) for _ in range(5)]
    hvd.barrier()
    for handle in handles[:20]:
        assert torch.equal(hvd.synchronize(handle), torch.full((100,), float(sum(range(size)))))
    for handle in handles[20:]:
        assert hvd.synchronize(handle).tolist() == list(range(size))


def test_handles_that_nobody_synchronizes(tensor: torch.Tensor) -> None:
    for i in range(3):
        for what, start in COLLECTIVES.items():
            start(tensor, f"dropped.{what}.{i}")
    hvd.barrier()
    assert_usable()


def test_tensors_may_be_dropped_while_in_flight(rank: int, size: int) -> None:
    """The operation keeps them alive."""
    handles = [
        hvd.allreduce_async(torch.full((10_000,), float(rank + i)), op=hvd.Sum, name=f"drop.{i}")
        for i in range(20)
    ]
    for i, handle in enumerate(handles):
        assert torch.equal(hvd.synchronize(handle), torch.full((10_000,), float(sum(range(size)) + i * size)))


def test_any_order_of_submission_and_of_waiting(rank: int, size: int) -> None:
    """Every rank mixes all operations in an order of its own, and waits in yet another."""
    jobs = [(what, i) for what in ("allreduce", "allgather", "broadcast", "alltoall") for i in range(8)]
    random.Random(rank).shuffle(jobs)
    handles = {}
    for what, i in jobs:
        own = torch.arange(float(2 * size)) + 100 * rank + i
        handles[what, i] = COLLECTIVES[what](own, f"{i}")
    random.Random(rank + 50).shuffle(jobs)
    for what, i in jobs:
        result = hvd.synchronize(handles[what, i])
        parts = [torch.arange(float(2 * size)) + 100 * r + i for r in range(size)]
        if what == "alltoall":
            want = torch.cat([part[2 * rank : 2 * rank + 2] for part in parts])
            assert torch.equal(result[0], want) and result[1].tolist() == [2] * size
        else:
            wants = {"allreduce": torch.stack(parts).mean(0), "allgather": torch.cat(parts)}
            assert torch.equal(result, wants.get(what, parts[0]))


def test_names_of_any_kind(tensor: torch.Tensor) -> None:
    for name in ("", "a b", "gewicht.Ä.λ", "x" * 5000, 'quote "', "new\nline", "allreduce.noname.1"):
        assert torch.equal(hvd.allreduce(tensor, name=name), tensor)


def test_many_names(rank: int, size: int) -> None:
    """More than the response cache holds (1024), each twice."""
    for _ in range(2):
        handles = [
            hvd.allreduce_async(torch.tensor(float(rank)), op=hvd.Sum, name=f"n.{i}") for i in range(1500)
        ]
        total = float(sum(range(size)))
        assert all(hvd.synchronize(handle).item() == total for handle in handles)
