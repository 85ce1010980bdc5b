"""broadcast_optimizer_state and broadcast_parameters alone: what they refuse, and what they leave behind."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from mirrored_job import MirroredEngine, mirrored_job
from torch import nn

import horovod.torch as hvd


@pytest.fixture
def engine() -> Iterator[MirroredEngine]:
    with mirrored_job(2) as engine:
        yield engine


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


def test_lbfgs_is_refused(engine: MirroredEngine) -> None:
    lbfgs = torch.optim.LBFGS(make_model().parameters())
    for optimizer in (lbfgs, hvd.DistributedOptimizer(lbfgs)):
        with pytest.raises(ValueError, match="LBFGS"):
            hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    assert not engine.requests


@pytest.mark.parametrize("given", [torch.ones(3), "weights", 7, None, [1.0], {"a": "b"}, [("a", 1, 2)]])
def test_what_is_no_parameters(given: Any, engine: MirroredEngine) -> None:
    with pytest.raises(ValueError, match="broadcast_parameters"):
        hvd.broadcast_parameters(given, root_rank=0)
