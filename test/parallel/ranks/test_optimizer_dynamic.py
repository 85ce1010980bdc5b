"""Changes between steps: parameters freeze and thaw, on all ranks or some."""

import copy
from typing import Any

import pytest
import torch
from contract import assert_same_bits_everywhere
from rank_fixtures import seeded
from torch import nn

import horovod.torch as hvd


def make_layers() -> list[nn.Linear]:
    with seeded(0):
        return [nn.Linear(4, 4) for _ in range(3)]


def wrapped(layers: list[nn.Linear], **options: Any) -> Any:
    model = nn.ModuleList(layers)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.5)
    return hvd.DistributedOptimizer(sgd, model.named_parameters(), **options)


def backward(layers: list[nn.Linear], value: float) -> None:
    torch.stack([layer(torch.full((1, 4), float(value))).sum() for layer in layers]).sum().backward()


@pytest.mark.parametrize("groups", [None, 1, 2])
def test_frozen_everywhere_and_unfrozen_again(groups: int | None, rank: int, size: int) -> None:
    layers = make_layers()
    optimizer = wrapped(layers, groups=groups)
    backward(layers, rank)
    optimizer.step()
    for _ in range(2):
        layers[1].requires_grad_(False)
        before = copy.deepcopy(layers[1].state_dict())
        optimizer.zero_grad()
        backward(layers, rank)
        optimizer.step()
        assert str(layers[1].state_dict()) == str(before), "nor do momentum and weight decay move it"
        layers[1].requires_grad_(True)
        optimizer.zero_grad()
        backward(layers, rank)
        optimizer.synchronize()
        for layer in layers:
            assert torch.equal(layer.weight.grad, torch.full((4, 4), (size - 1) / 2))
        with optimizer.skip_synchronize():
            optimizer.step()
    assert_same_bits_everywhere(*nn.ModuleList(layers).parameters())


@pytest.mark.parametrize("groups", [None, 1, 2])
def test_frozen_on_some_ranks_only(groups: int | None, rank: int, size: int) -> None:
    """A rank with a frozen parameter makes the others' step: replicas stay equal."""
    layers = make_layers()
    optimizer = wrapped(layers, groups=groups)
    for step in range(3):
        layers[1].requires_grad_(rank % 2 == 0)
        optimizer.zero_grad()
        backward(layers, step + 1)
        optimizer.synchronize()
        share = (size + 1) // 2 / size
        assert torch.equal(layers[1].weight.grad, torch.full((4, 4), (step + 1) * share))
        with optimizer.skip_synchronize():
            optimizer.step()
        assert_same_bits_everywhere(*nn.ModuleList(layers).parameters())


def test_two_players_that_take_turns(rank: int, size: int) -> None:
    """Generator and discriminator, each with its own optimizer; the idle one is frozen."""
    with seeded(0):
        players = {"generator": nn.Linear(4, 4), "discriminator": nn.Linear(4, 1)}
    optimizers = {
        name: hvd.DistributedOptimizer(
            torch.optim.Adam(player.parameters()), [(f"{name}.{n}", p) for n, p in player.named_parameters()]
        )
        for name, player in players.items()
    }
    for turn in ["generator", "discriminator", "discriminator", "generator"]:
        before = copy.deepcopy({name: player.state_dict() for name, player in players.items()})
        for name, player in players.items():
            player.requires_grad_(name == turn)
            optimizers[name].zero_grad()
        players["discriminator"](players["generator"](torch.full((2, 4), rank + 1.0))).sum().backward()
        optimizers[turn].step()
        for name, player in players.items():
            assert all(p.grad is not None for p in player.parameters()) == (name == turn)
            assert (str(player.state_dict()) != str(before[name])) == (name == turn)
    assert_same_bits_everywhere(*nn.ModuleList(players.values()).parameters())


def test_unfreezing_layer_by_layer(rank: int, size: int) -> None:
    layers = make_layers()
    for layer in layers:
        layer.requires_grad_(False)
    optimizer = wrapped(layers)
    for count in range(1, 4):
        layers[-count].requires_grad_(True)
        optimizer.zero_grad()
        backward(layers, rank)
        optimizer.synchronize()
        for layer in layers[-count:]:
            assert torch.equal(layer.weight.grad, torch.full((4, 4), (size - 1) / 2))
        assert len(optimizer._requires_update) == 2 * count
        with optimizer.skip_synchronize():
            optimizer.step()
    assert_same_bits_everywhere(*nn.ModuleList(layers).parameters())
