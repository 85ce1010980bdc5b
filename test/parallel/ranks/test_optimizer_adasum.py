"""op=Adasum with real ranks: the step is the Adasum of the ranks' own steps."""

from typing import Any

import pytest
import torch
from contract import adasum_of, assert_same_bits_everywhere
from rank_fixtures import seeded
from torch import nn

import horovod.torch as hvd


def make(rank: int, name: str) -> tuple[nn.Sequential, Any]:
    with seeded(0):
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    options = {"momentum": 0.9} if name == "SGD" else {}
    return model, getattr(torch.optim, name)(model.parameters(), lr=0.05, **options)


def backward(model: nn.Module, rank: int, step: int) -> None:
    generator = torch.Generator().manual_seed(10 * step + rank)
    model(torch.randn(4, 6, generator=generator)).pow(2).mean().backward()


class Simulation:
    """All ranks' steps in this process."""

    def __init__(self, size: int, name: str) -> None:
        self.ranks = [make(rank, name) for rank in range(size)]

    def step(self, passes: list[int]) -> None:
        before = [p.detach().clone() for p in self.ranks[0][0].parameters()]
        for rank, (model, optimizer) in enumerate(self.ranks):
            optimizer.zero_grad()
            for number in passes:
                backward(model, rank, number)
            optimizer.step()
        for i, start in enumerate(before):
            locals_ = [list(model.parameters())[i] for model, _ in self.ranks]
            combined = adasum_of([p.detach() - start for p in locals_])
            for p in locals_:
                p.data = start + combined


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("options", [{}, {"groups": 1}, {"groups": 3}], ids=str)
@pytest.mark.parametrize("passes", [1, 2])
def test_training(name: str, options: dict[str, Any], passes: int, rank: int, size: int) -> None:
    model, optimizer = make(rank, name)
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), op=hvd.Adasum, backward_passes_per_step=passes, **options
    )
    simulation = Simulation(size, name)
    for step in range(3):
        numbers = [step * passes + i for i in range(passes)]
        optimizer.zero_grad()
        for number in numbers:
            backward(model, rank, number)
        optimizer.step()
        simulation.step(numbers)
    for ours, theirs in zip(model.parameters(), simulation.ranks[0][0].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
    assert_same_bits_everywhere(*model.parameters())


def test_steps_in_different_directions_are_added_and_equal_ones_count_once(rank: int, size: int) -> None:
    apart, alike = nn.Parameter(torch.zeros(size)), nn.Parameter(torch.zeros(size))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([apart, alike], lr=1.0), op=hvd.Adasum)
    (apart[rank] * 2 + alike.sum()).backward()
    optimizer.step()
    assert torch.equal(apart, torch.full((size,), -2.0))
    torch.testing.assert_close(alike, torch.full((size,), -1.0))


def test_a_gradient_that_some_ranks_miss(rank: int, size: int) -> None:
    used, unused = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))
    sgd = torch.optim.SGD([used, unused], lr=1.0, weight_decay=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, op=hvd.Adasum)
    if rank == 0:
        used.sum().backward()
    optimizer.step()
    assert torch.equal(used, torch.full((3,), -1.0)) and (used.grad is None) == (rank != 0)
    assert torch.equal(unused, torch.ones(3)) and unused.grad is None


def test_compressed_deltas(rank: int, size: int) -> None:
    weight = nn.Parameter(torch.zeros(size))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([weight], lr=1.0), op=hvd.Adasum, compression=hvd.Compression.fp16
    )
    (weight[rank] * 0.5).backward()
    optimizer.step()
    assert torch.equal(weight, torch.full((size,), -0.5))


def test_its_state_is_broadcast(rank: int) -> None:
    model, sgd = make(rank, "SGD")
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), op=hvd.Adasum)
    backward(model, rank, 0)
    optimizer.step()
    hvd.broadcast_optimizer_state(optimizer, root_rank=1)
    buffers = [optimizer.state[p]["momentum_buffer"].tolist() for p in model.parameters()]
    buffers = hvd.allgather_object(buffers)
    assert all(each == buffers[1] for each in buffers)


@pytest.mark.parametrize("op", ["Average", "Adasum"])
@pytest.mark.parametrize("sparse_as_dense", [False, True])
def test_sparse_adam(op: str, sparse_as_dense: bool, rank: int, size: int) -> None:
    """The first step moves each row with a gradient by the learning rate.

    A row of one rank alone is orthogonal to the others' steps, so Adasum adds it.
    """
    table = nn.Embedding(8, 4, sparse=True)
    with torch.no_grad():
        table.weight.zero_()
    adam = torch.optim.SparseAdam(table.parameters(), lr=0.5)
    optimizer = hvd.DistributedOptimizer(
        adam, table.named_parameters(), op=getattr(hvd, op), sparse_as_dense=sparse_as_dense
    )
    table(torch.tensor([rank])).sum().backward()
    optimizer.step()
    want = torch.zeros(8, 4)
    want[:size] = -0.5
    assert torch.allclose(table.weight.detach(), want, atol=1e-5)
    assert table.weight.grad.is_sparse


def test_a_closure(rank: int, size: int) -> None:
    weight = nn.Parameter(torch.zeros(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), op=hvd.Adasum)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight - 1).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == -2.0
    torch.testing.assert_close(weight, torch.full((2,), -1.0))
    assert optimizer.step(closure) == -4.0
