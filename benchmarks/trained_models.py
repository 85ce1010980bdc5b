"""The models that benchmarks train, and batches of random samples for them. It does not use Horovod."""

from __future__ import annotations

import sys
from pathlib import Path

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


def parameter_count(name: str, small: bool = False) -> int:
    """Return the number of parameters without allocating them."""
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build(name, small).parameters())
