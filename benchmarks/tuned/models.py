"""Models that take the time of computing and compute nothing: the parameters of real ones, and waits.

Two cores cannot compute for eight ranks at once, so a step waits as long as a device would compute, a third
of it forward, and gradients become ready in the order of a backward pass.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import torch
import trained_models
from torch import nn

MODELS = ("mnist", "resnet50", "transformer", "vgg16")
SECONDS = {"mnist": 0.02, "resnet50": 0.12, "transformer": 0.12, "vgg16": 0.4}  # of computing in a step
_PARTS = 12  # that a model is cut into, each of which waits by itself


class _Waiting(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, part: Part, *weights: torch.Tensor) -> torch.Tensor:
        ctx.part = part
        time.sleep(part.seconds / 3)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        time.sleep(ctx.part.seconds * 2 / 3)
        return gradient, None, *(ready.clone() for ready in ctx.part.ready)


class Part(nn.Module):
    """Some layers' parameters, whose gradients are always the same."""

    def __init__(self, shapes: Sequence[torch.Size], seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.weights = nn.ParameterList(torch.randn(shape) * 0.02 for shape in shapes)
        self.ready = [torch.randn_like(weight) * 1e-3 for weight in self.weights]

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = _Waiting.apply(values, self, *self.weights)
        return result


def shapes_of(name: str) -> list[torch.Size]:
    """Of the real model's parameters, in their order."""
    if name == "mnist":
        sizes = [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (10, 128), (10,)]
        return [torch.Size(size) for size in sizes]
    if name == "transformer":
        width = 512
        block = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
        vectors = [(width,)] * 4 + [(3 * width,), (width,), (4 * width,), (width,)]
        return [torch.Size(size) for size in [*block, *vectors] * 8]
    return [parameter.shape for parameter in trained_models.build(name, False).parameters()]


def make(name: str, seconds: float | None = None) -> nn.Sequential:
    """The same on all ranks. ``seconds`` of a step: those of SECONDS without."""
    torch.manual_seed(1)
    shapes = shapes_of(name)
    bounds = [len(shapes) * part // _PARTS for part in range(_PARTS + 1)]
    each = (seconds or SECONDS[name]) / _PARTS
    parts = [Part(shapes[begin:end], each) for begin, end in itertools.pairwise(bounds)]
    return nn.Sequential(*parts)
