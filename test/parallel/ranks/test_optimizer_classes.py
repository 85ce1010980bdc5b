"""Every optimizer of torch.optim, wrapped, makes the steps of one process with all ranks' data."""

import copy
from typing import Any

import pytest
import torch
from contract import assert_same_bits_everywhere
from rank_fixtures import seeded
from torch import nn

import horovod.torch as hvd

STEPS = 3
OPTIONS: dict[str, dict[str, Any]] = {
    "Adadelta": {"lr": 1.0, "weight_decay": 0.1},
    "Adagrad": {"lr": 0.1},
    "LBFGS": {"lr": 0.5, "max_iter": 4},
    "RMSprop": {"lr": 0.01, "momentum": 0.9, "centered": True},
    "SGD": {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
}


def every_optimizer() -> list[str]:
    base = torch.optim.Optimizer
    members = vars(torch.optim).items()
    return sorted(
        name for name, m in members if isinstance(m, type) and issubclass(m, base) and m is not base
    )


def make(name: str) -> tuple[nn.Module, Any]:
    with seeded(1):
        if name == "SparseAdam":
            model: nn.Module = nn.Sequential(nn.Embedding(6, 4, sparse=True))
        else:  # only weights: Muon accepts only matrices
            model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.Tanh(), nn.Linear(8, 2, bias=False))
    return model, getattr(torch.optim, name)(model.parameters(), **OPTIONS.get(name, {"lr": 0.01}))


def loss_of(name: str, model: nn.Module, ranks: list[int], step: int) -> torch.Tensor:
    def one(rank: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(10 * step + rank)
        if name == "SparseAdam":
            return model(torch.randint(0, 6, (3,), generator=generator)).pow(2).sum()
        return (model(torch.randn(4, 5, generator=generator)) - 1.0).pow(2).mean()

    return torch.stack([one(rank) for rank in ranks]).mean()


def train(name: str, model: nn.Module, optimizer: Any, ranks: list[int]) -> None:
    for step in range(STEPS):

        def closure(step: int = step) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(name, model, ranks, step)
            loss.backward()
            return loss

        if name == "LBFGS":
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()


@pytest.mark.parametrize("name", every_optimizer())
@pytest.mark.parametrize("options", [{}, {"groups": 1}], ids=["alone", "grouped"])
def test_steps(name: str, options: dict[str, Any], rank: int, size: int) -> None:
    model, optimizer = make(name)
    reference, alone = make(name)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), **options)
    assert type(optimizer).__name__ == name and isinstance(optimizer, getattr(torch.optim, name))
    train(name, model, optimizer, [rank])
    train(name, reference, alone, list(range(size)))
    for ours, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=2e-4)
    assert_same_bits_everywhere(*model.parameters())
    assert str(optimizer.state_dict()["param_groups"]) == str(alone.state_dict()["param_groups"])


@pytest.mark.parametrize("name", every_optimizer())
def test_wrapping_keeps_a_loaded_state(name: str, rank: int, size: int) -> None:
    """Train, save, load into a new optimizer, wrap it, train on: equal to an uninterrupted training."""
    model, optimizer = make(name)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    train(name, model, optimizer, [rank])
    resumed, loaded = make(name)
    resumed.load_state_dict(model.state_dict())
    loaded.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    loaded = hvd.DistributedOptimizer(loaded, resumed.named_parameters())
    assert str(loaded.state_dict()) == str(optimizer.state_dict())
    train(name, model, optimizer, [rank])
    train(name, resumed, loaded, [rank])
    assert all(map(torch.equal, model.parameters(), resumed.parameters()))


def test_lbfgs_stops_on_all_ranks_alike(rank: int) -> None:
    """Ranks whose own losses converge at different times would wait for each other forever."""
    weight = nn.Parameter(torch.zeros(3))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.LBFGS([weight], lr=1.0, max_iter=50, line_search_fn="strong_wolfe")
    )
    calls = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight - rank).pow(4).sum() if rank else (weight * 1e-6).pow(2).sum()
        loss.backward()
        calls.append(float(loss))
        return loss

    optimizer.step(closure)
    assert len(set(hvd.allgather_object(len(calls)))) == 1 and len(calls) > 2
    assert_same_bits_everywhere(weight)
