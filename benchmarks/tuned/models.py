"""Models that wait instead of computing, with the parameters of real ones.

Two cores cannot compute for eight ranks at once. A step therefore waits as long as a device would compute, a
third of it forward, and gradients become ready in the order of a backward pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
import trained_models
from on_hosts.models import Block, block_shapes
from torch import nn

SECONDS = {"mnist": 0.02, "resnet50": 0.12, "transformer": 0.12, "vgg16": 0.4}  # of computing in a step
_PARTS = 12  # of a model, each of which waits separately


def shapes_of(name: str) -> list[Sequence[int]]:
    """Return the shapes of the real model's parameters, in their order."""
    if name == "mnist":
        return [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (10, 128), (10,)]
    if name == "transformer":
        return [*block_shapes(512) * 8]
    return [parameter.shape for parameter in trained_models.build(name, False).parameters()]


def make(name: str, seconds: float | None = None) -> nn.Sequential:
    """Return the model, equal on all ranks. ``seconds`` of a step; None: the model's entry in SECONDS."""
    torch.manual_seed(1)
    shapes = shapes_of(name)
    bounds = [len(shapes) * part // _PARTS for part in range(_PARTS + 1)]
    each = (seconds or SECONDS[name]) / _PARTS
    return nn.Sequential(*(Block(shapes[begin:end], each) for begin, end in itertools.pairwise(bounds)))
