"""DistributedOptimizer over some ranks: the set averages, others step alone, objects stay in the set."""

from typing import Any

import pytest
import torch
from rank_fixtures import seeded
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors


def wrapped(layer: nn.Module, **options: Any) -> Any:
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    return hvd.DistributedOptimizer(sgd, layer.named_parameters(), **options)


def test_a_set_that_was_removed() -> None:
    removed = hvd.add_process_set([0])
    hvd.remove_process_set(removed)
    with refused(errors.unregistered_set):
        wrapped(nn.Linear(2, 2), process_set=removed)


@pytest.mark.parametrize("groups", [None, 1, 2])
@pytest.mark.parametrize("compression", ["none", "fp16"])
@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_gradients_are_those_of_the_set(
    groups: int | None, compression: str, op: str, parity: list[Any], rank: int
) -> None:
    mine = parity[rank % 2]
    layer = nn.Linear(4, 3)
    optimizer = wrapped(
        layer,
        process_set=mine,
        groups=groups,
        compression=getattr(hvd.Compression, compression),
        op=getattr(hvd, op),
    )
    layer(torch.full((1, 4), float(rank))).sum().backward()
    optimizer.synchronize()
    expected = sum(mine.ranks) / (mine.size() if op == "Average" else 1)
    assert torch.equal(layer.weight.grad, torch.full((3, 4), expected))
    with optimizer.skip_synchronize():
        optimizer.step()


def test_a_rank_outside_steps_alone(parity: list[Any], rank: int) -> None:
    even = parity[0]
    with seeded(rank):
        layer, reference = nn.Linear(4, 3), nn.Linear(4, 3)
    reference.load_state_dict(layer.state_dict())
    optimizer, alone = wrapped(layer, process_set=even), torch.optim.SGD(reference.parameters(), 0.1, 0.9)
    for _ in range(2):
        optimizer.zero_grad()
        layer(torch.full((1, 4), float(rank))).sum().backward()
        optimizer.step()
        alone.zero_grad()
        mean = rank if rank % 2 else sum(even.ranks) / even.size()
        reference(torch.full((1, 4), float(mean))).sum().backward()
        alone.step()
    torch.testing.assert_close(layer.weight, reference.weight)
    assert bool(optimizer._requires_update) == (rank % 2 == 0)
    assert hvd.allreduce(torch.ones(1), op=hvd.Sum) == hvd.size(), "unnamed operations still match"


def test_sparse_and_missing_gradients(parity: list[Any], rank: int, size: int) -> None:
    mine = parity[rank % 2]
    embedding = nn.Embedding(size, 2, sparse=True)
    layer = nn.Linear(2, 1)
    optimizer = wrapped(nn.ModuleList([embedding, layer]), process_set=mine)
    embedding(torch.tensor([rank])).sum().backward()
    optimizer.synchronize()
    want = torch.zeros(size, 2)
    want[mine.ranks] = 1 / mine.size()
    assert torch.equal(embedding.weight.grad.to_dense(), want)
    assert torch.equal(layer.weight.grad, torch.zeros(1, 2))


def test_objects(parity: list[Any], rank: int) -> None:
    mine = parity[rank % 2]
    root = mine.ranks[-1]
    for _ in range(2):
        assert hvd.broadcast_object({"from": rank}, root, process_set=mine) == {"from": root}
    assert hvd.broadcast_object(rank, root, name="named", process_set=mine) == root
    with pytest.raises(ValueError):
        hvd.broadcast_object(rank, root, process_set=parity[1 - rank % 2])
    assert hvd.broadcast_object(rank, 0) == 0, "numbered names still match"


def test_adasum_is_over_all_ranks(parity: list[Any]) -> None:
    with refused(errors.adasum_over_set):
        wrapped(nn.Linear(2, 2), process_set=parity[0], op=hvd.Adasum)
