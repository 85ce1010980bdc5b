"""Scripts that read gradients between backward() and step(), or use different parameters on some ranks.

Random scripts (test_random_scripts.py) do this in many more ways, and are compared with one process.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from refusals import refused
from torch import nn

import horovod.torch as hvd
from horovod.torch import errors

COMPRESSIONS = ("none", "fp16", "bit8:min_elements=0", "int4:error_feedback=1,min_elements=0")
pytestmark = pytest.mark.filterwarnings("ignore")  # about gradients that are too small for compression


# Ranks may be threads, which share torch's random numbers: models are rank 0's, inputs come from generators.
def same_everywhere(model: nn.Module) -> None:
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)


def drawn(seed: int) -> Callable[[int, int], torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return lambda rows, columns: torch.randn(rows, columns, generator=generator)


def model_of(parts: int) -> nn.ModuleDict:
    heads = {f"head{i}": nn.Linear(16, 8) for i in range(parts)}
    model = nn.ModuleDict({"trunk": nn.Linear(12, 16), **heads, "unused": nn.Linear(3, 3)})
    same_everywhere(model)
    return model


def loss_of(model: nn.ModuleDict, x: torch.Tensor, head: int) -> torch.Tensor:
    return model[f"head{head}"](torch.tanh(model["trunk"](x))).square().mean()


def are_alike(tensors: list[torch.Tensor | None]) -> bool:
    everyones = hvd.allgather_object([None if t is None else t.detach().clone() for t in tensors])
    first = everyones[0]
    return all(
        (a is None) == (b is None) and (a is None or torch.equal(a.nan_to_num(), b.nan_to_num()))
        for own in everyones
        for a, b in zip(first, own, strict=True)
    )


def wrapped(model: nn.Module, **options: object) -> torch.optim.Optimizer:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(sgd, model.named_parameters(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("groups", [None, 2])
@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("calls_unscale", [True, False])
def test_amp_with_branches(
    compression: str, groups: int | None, waits: bool, calls_unscale: bool, rank: int, size: int
) -> None:
    """All ranks skip the step in which one rank overflows, whichever zeroes its gradients afterwards."""
    model = model_of(size)
    optimizer = wrapped(model, compression=compression, groups=groups, wait_in_backward=waits)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    inputs = drawn(1 + rank)
    for step in range(3):
        (model if groups is None else optimizer).zero_grad()
        before = [p.detach().clone() for p in model.parameters()]
        loss = loss_of(model, inputs(4, 12), (rank + step) % size)
        scaler.scale(loss * (float("inf") if rank == 0 and step == 1 else 1.0)).backward()
        if calls_unscale:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            assert are_alike([p.grad for p in model.parameters()])
        scaler.step(optimizer)
        scaler.update()
        assert all(map(torch.equal, model.parameters(), before)) == (step == 1)
    assert are_alike(list(model.parameters())) and scaler.get_scale() == 512.0


def test_a_shared_parameter_is_reduced_once(rank: int, size: int) -> None:
    net = nn.Linear(8, 8, bias=False)
    nn.init.zeros_(net.weight)
    everything = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), [("all", net.weight)])
    stage = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), [("stage", net.weight)])
    for step in range(4):
        everything.zero_grad(), stage.zero_grad()
        (net.weight.sum() * (rank + 1)).backward()
        assert torch.equal(net.weight.grad, torch.full_like(net.weight, (size + 1) / 2))
        (everything if step % 2 else stage).step()
    assert are_alike([net.weight])
    with refused(errors.shared_unlike, tensor="third", differing=["op=Sum here and Average there"]):
        hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), 0.1), [("third", net.weight)], op=hvd.Sum)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("skips", [False, True])
def test_a_gan(named: bool, skips: bool, rank: int, size: int) -> None:
    """Generator and discriminator use the same names, and a loss passes through both."""
    players = [nn.Linear(8, 8), nn.Linear(8, 1)]
    for player in players:
        same_everywhere(player)
    optimizers = [
        hvd.DistributedOptimizer(
            torch.optim.SGD(each.parameters(), 0.1),
            each.named_parameters() if named else None,
            skip_extra_backward=skips,
        )
        for each in players
    ]
    (generator, critic), (of_generator, of_critic) = players, optimizers
    noise = drawn(1 + rank)
    for _ in range(3):
        of_critic.zero_grad()
        critic(generator(noise(4, 8)).detach()).mean().backward()
        of_critic.step()
        used = critic.weight.grad.clone()
        of_generator.zero_grad()
        critic(generator(noise(4, 8))).mean().backward()
        assert torch.equal(critic.weight.grad, used) == skips
        of_generator.step()
    assert are_alike([p for each in players for p in each.parameters()])


def test_a_later_pass_adds_what_its_rank_lacked(rank: int, size: int) -> None:
    """Rank 0 needs two passes for the work that others do in one."""
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    optimizer = wrapped(model, op=hvd.Sum)
    x = torch.ones(1, 2)
    if rank == 0:
        model["a"](x).sum().backward()
        model["b"](x).sum().backward()
    else:
        (model["a"](x) + model["b"](x)).sum().backward()
    optimizer.synchronize()
    assert all(torch.equal(p.grad, torch.full_like(p, size)) for p in model.parameters())
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.zero_grad()
    (model["a"](x) + model["b"](x)).sum().backward()
    assert all(torch.equal(p.grad, torch.full_like(p, size)) for p in model.parameters())
    optimizer.step()


@pytest.mark.parametrize("unused", ["zeros", "none"])
def test_parameters_that_no_rank_uses(unused: str, rank: int, size: int) -> None:
    model = model_of(size)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.5)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters(), unused=unused)
    before = model["unused"].weight.detach().clone()
    loss_of(model, torch.ones(2, 12), rank).backward()
    optimizer.step()
    is_moved = not torch.equal(model["unused"].weight, before)
    assert is_moved == (unused == "zeros") and (model["unused"].weight.grad is None) == (unused == "none")
    assert are_alike(list(model.parameters()))
