"""Scripts that change gradients between backward() and step(): ranks stay identical, and right."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from contract import assert_same_bits_everywhere
from test_optimizer import assert_close, loss_of, make_model, wrapped
from torch import nn

import horovod.torch as hvd

STEPS = 3


def halve(parameters: list[nn.Parameter]) -> None:
    for p in parameters:
        p.grad = p.grad * 0.5  # type: ignore[operator]


# With none, random scripts do this and more, and are compared with one process: test_random_scripts.py.
RECIPES: dict[str, Callable[[list[nn.Parameter]], object]] = {
    "clip_grad_norm_": functools.partial(nn.utils.clip_grad_norm_, max_norm=0.1),
    "clip_grad_value_": functools.partial(nn.utils.clip_grad_value_, clip_value=1e-3),
    "halved": halve,
}


def trained(name: str, optimizer_of: Callable[[nn.Module], Any], ranks: list[int]) -> nn.Module:
    model = make_model()
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, ranks, step).backward()
        RECIPES[name](list(model.parameters()))
        optimizer.step()
    return model


def alone(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_right_unchanged(name: str) -> None:
    everyone = list(range(hvd.size()))
    reference = trained(name, alone, everyone)
    for compression in (hvd.Compression.none, hvd.Compression.fp16, hvd.Compression.bit8):
        model = trained(name, functools.partial(wrapped, compression=compression), [hvd.rank()])
        assert_same_bits_everywhere(*model.parameters())
        # bit8 loses some percent of a gradient, and three steps of 0.1 make this error.
        tolerance = {hvd.Compression.none: 1e-6, hvd.Compression.fp16: 1e-4}.get(compression, 2e-2)
        assert_close(list(model.parameters()), list(reference.parameters()), tolerance)


def test_a_metric_between_backward_and_step_on_one_rank_before_the_pass_of_the_others() -> None:
    model = make_model()
    optimizer = wrapped(model)
    if hvd.rank() == 0:
        loss_of(model, [0]).backward()
        hvd.allreduce(torch.ones(1), name="metric")
    else:
        hvd.allreduce(torch.ones(1), name="metric")
        loss_of(model, [hvd.rank()]).backward()
    optimizer.step()
    assert_same_bits_everywhere(*model.parameters())
