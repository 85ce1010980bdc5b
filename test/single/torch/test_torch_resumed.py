"""Training resumed from one rank's checkpoint gives the same bits, with the error feedback of all ranks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from thread_ranks import run_ranks

import horovod.torch as hvd


def made(weights: torch.Tensor | None = None) -> tuple[torch.nn.Module, Any]:
    model = torch.nn.Linear(64, 32, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.zeros(32, 64) if weights is None else weights)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    compression = "int4:error_feedback=1"
    return model, hvd.DistributedOptimizer(sgd, model.named_parameters(), compression=compression)


def trained(model: torch.nn.Module, optimizer: Any, steps: range) -> torch.Tensor:
    """The weights after these steps; each rank and step has different data."""
    for step in steps:
        data = torch.Generator().manual_seed(10 * step + hvd.rank())
        optimizer.zero_grad()
        model(torch.randn(8, 64, generator=data)).square().sum().mul(0.01).sub(model.weight.sum()).backward()
        optimizer.step()
    return model.weight.detach().clone()


@pytest.mark.parametrize("root", [0, 1])
def test_every_rank_gets_its_own_error_feedback(root: int) -> None:
    def work() -> tuple[bool, bool]:
        model, optimizer = made()
        middle = trained(model, optimizer, range(3))
        optimizer.consolidate_residuals(to=root)
        checkpoint = copy.deepcopy(optimizer.state_dict())
        straight = trained(model, optimizer, range(3, 6))
        again, resumed = made(middle)
        if hvd.rank() == root:
            resumed.load_state_dict(copy.deepcopy(checkpoint))  # torch keeps the given tensors
        hvd.broadcast_optimizer_state(resumed, root_rank=root)
        other, without = made(middle)
        checkpoint.pop("horovod")
        without.load_state_dict(checkpoint)
        lost = trained(other, without, range(3, 6))
        return torch.equal(trained(again, resumed, range(3, 6)), straight), torch.equal(lost, straight)

    assert run_ranks(2, work) == [(True, False)] * 2
