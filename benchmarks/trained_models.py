"""The models that benchmarks train, and batches of random samples for them. It does not use Horovod.

Models may wait instead of computing, with the parameters of real ones: two cores cannot compute for eight
ranks at once.
"""

from __future__ import annotations

import itertools
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

import deeplab
import mnist_model
import resnet
import vgg
from convergence_tasks import LanguageModel

Batch = tuple[torch.Tensor, torch.Tensor]

MODELS = ("resnet50", "vgg16", "deeplabv3_resnet101", "transformer", "mnist")
TEXT, DIGITS, SEGMENTED = "transformer", "mnist", "deeplabv3_resnet101"
CLASSES, SEGMENTS, NUMERALS = 1000, 21, 10
PICTURES = {"resnet50": 224, "vgg16": 224, SEGMENTED: 513}  # pixels of a side: ImageNet, PASCAL VOC
SMALLEST = {SEGMENTED: 2}  # samples, as it normalises over single pixels: batches are multiples
SMALL_PICTURE, DIGIT = 32, 28
CONTEXT, SMALL_CONTEXT = 256, 16
# 12 layers of width 768 and 12 heads: 85 M parameters.
TRANSFORMER: dict[str, int] = {"width": 768, "heads": 12, "layers": 12}
SMALL_TRANSFORMER: dict[str, int] = {"width": 32, "heads": 2, "layers": 2}
SMALL_VGG = (4, 8, 16, 32, 32)  # channels of the stages


def small_vgg() -> nn.Sequential:
    """Return a sixteenth of VGG-16's width, one convolution in each stage, for pictures of 32 pixels."""
    layers: list[nn.Module] = []
    before = 3
    for channels in SMALL_VGG:
        layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        before = channels
    layers += [nn.Flatten(), nn.Linear(before, 256), nn.ReLU(inplace=True), nn.Dropout()]
    return nn.Sequential(*layers, nn.Linear(256, 256), nn.ReLU(inplace=True), nn.Linear(256, CLASSES))


def build(name: str, small: bool = False) -> nn.Module:
    """Return the model of MODELS called `name`; `small`: one of its kind with steps of milliseconds.

    Its first parameters come from torch's global generator.
    """
    if name == TEXT:
        size = SMALL_TRANSFORMER if small else TRANSFORMER
        return LanguageModel(SMALL_CONTEXT if small else CONTEXT, **size)
    if name == DIGITS:
        return mnist_model.MnistNet()
    if name == "vgg16":
        return small_vgg() if small else vgg.vgg16(CLASSES)
    if name == SEGMENTED:
        return deeplab.build("deeplabv3_resnet18" if small else name, SEGMENTS)
    return resnet.build("resnet18" if small else name, CLASSES)


def batch(name: str, size: int, seed: int, small: bool = False, picture: int | None = None) -> Batch:
    """Return `size` random samples and their labels. `picture`: pixels of a side, if not the usual number."""
    random = torch.Generator().manual_seed(seed)
    if name == TEXT:
        length = (SMALL_CONTEXT if small else CONTEXT) + 1
        text = torch.randint(256, (size, length), generator=random)
        return text[:, :-1], text[:, 1:]
    if name == DIGITS:
        digits = torch.randn(size, 1, DIGIT, DIGIT, generator=random)
        return digits, torch.randint(NUMERALS, (size,), generator=random)
    side = picture or (SMALL_PICTURE if small else PICTURES[name])
    images = torch.randn(size, 3, side, side, generator=random)
    if name == SEGMENTED:
        return images, torch.randint(SEGMENTS, (size, side, side), generator=random)
    return images, torch.randint(CLASSES, (size,), generator=random)


def loss_of(name: str, outputs: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    if name == TEXT:
        outputs, answers = outputs.flatten(0, -2), answers.flatten()
    return functional.cross_entropy(outputs.float(), answers)


def digest_of(model: nn.Module) -> int:
    """Return a digest, which is equal on two ranks whose parameters have the same bytes."""
    digest = 0
    for parameter in model.parameters():
        digest = zlib.crc32(parameter.detach().cpu().contiguous().numpy().data, digest)
    return digest


def parameter_count(name: str, small: bool = False) -> int:
    """Return the number of parameters without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(name, small).parameters())


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


def waiting(shapes: Sequence[Sequence[int]], seconds: float, parts: int) -> nn.Sequential:
    """Return a model of parameters of these shapes, whose `parts` together wait `seconds` in a step."""
    bounds = [len(shapes) * part // parts for part in range(parts + 1)]
    return nn.Sequential(*(Block(shapes[a:b], seconds / parts) for a, b in itertools.pairwise(bounds)))


def block_shapes(width: int) -> list[tuple[int, ...]]:
    """Return the shapes of a transformer block's parameters, 12 width^2."""
    matrices = [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width)]
    return [*matrices, *[(width,)] * 4, (3 * width,), (width,), (4 * width,), (width,)]


def shapes_of(name: str) -> list[Sequence[int]]:
    """Return the shapes of the real model's parameters, in their order; "transformer": 25 M parameters."""
    if name == "mnist":  # 1.2 M parameters
        return [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (10, 128), (10,)]
    if name == "transformer":
        return [*block_shapes(512) * 8]
    with torch.device("meta"):
        return [parameter.shape for parameter in build(name).parameters()]
