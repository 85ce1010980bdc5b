"""broadcast_optimizer_state and broadcast_parameters in a world of one: refused input, state afterwards."""

import copy

import pytest
import torch
from mirrored_job import MirroredEngine
from torch import nn

import horovod.torch as hvd


def make_model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))


def test_an_optimizer_without_state_gives_parameters_zero_gradients(engine: MirroredEngine) -> None:
    model = make_model()
    model[0].bias.requires_grad_(False)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters())
    before = copy.deepcopy(model)
    model[1].bias.grad = torch.ones(2)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert torch.equal(model[0].weight.grad, torch.zeros(3, 4)) and model[0].bias.grad is None
    assert torch.equal(model[1].bias.grad, torch.ones(2))
    assert not optimizer.state_dict()["state"]
    assert all(map(torch.equal, model.parameters(), before.parameters()))


@pytest.mark.parametrize("made", ["model", "SparseAdam"])
def test_sparse_zero_gradients(made: str, engine: MirroredEngine) -> None:
    model = nn.Sequential(nn.Embedding(3, 4, sparse=True))
    parameters = list(model.parameters())
    if made == "model":
        hvd.broadcast_optimizer_state(torch.optim.SGD(parameters, lr=0.1), 0, model=model)
    else:
        hvd.broadcast_optimizer_state(torch.optim.SparseAdam(parameters), 0)
    assert model[0].weight.grad.is_sparse and model[0].weight.grad._nnz() == 0
