"""Models to train between hosts: VGG-16, and models that only take the time of computing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
import trained_models
from torch import nn


class _Accelerator(torch.autograd.Function):
    """Wait as long as a device would compute: a third forward, two thirds backward as gradients appear."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, block: Block, *weights: torch.Tensor) -> torch.Tensor:
        ctx.block = block
        time.sleep(block.seconds / 3)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        time.sleep(ctx.block.seconds * 2 / 3)
        return gradient, None, *(ready.clone() for ready in ctx.block.ready)


class Block(nn.Module):
    """The parameters of some layers, and an accelerator that only waits."""

    def __init__(self, shapes: Sequence[Sequence[int]], seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.weights = nn.ParameterList(torch.randn(*shape) * 0.02 for shape in shapes)
        self.ready = [torch.randn_like(weight) * 1e-3 for weight in self.weights]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Accelerator.apply(values, self, *self.weights)
        return result


def block_shapes(width: int) -> list[tuple[int, ...]]:
    """Return the shapes of a transformer block's parameters, 12 width^2."""
    matrices = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    return [*matrices, *[(width,)] * 4, (3 * width,), (width,), (4 * width,), (width,)]


def transformer(seconds: float, width: int, blocks: int = 8) -> nn.Sequential:
    """Return blocks that wait `seconds` in all, forward and backward. 8 of width 512: 25 M parameters."""
    return nn.Sequential(*(Block(block_shapes(width), seconds / blocks) for _ in range(blocks)))


def make(task: dict[str, Any], rank: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor | None]:
    """Return a task's model, equal on all ranks, and a batch of this rank: pictures and labels.

    The transformer takes any input and has no labels: its loss is the mean of its output.
    """
    small = task["model"].endswith("small")
    torch.manual_seed(1)
    if task["model"].startswith("transformer"):
        width = 64 if small else 512
        model = transformer(task["compute"], width)
        torch.manual_seed(2 + rank)
        return model, torch.randn(task["batch"], width, requires_grad=True), None
    model = trained_models.build("vgg16", small)
    return model, *trained_models.batch("vgg16", task["batch"], 2 + rank, small)
