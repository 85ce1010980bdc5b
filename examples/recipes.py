"""Recipes of pytorch_ddp.py, by the name of a model: the network, its data, and suitable settings."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import deeplab
import imagenet_data
import mnist_data
import resnet
import scenes_data
import torch
import vgg
from mnist_model import MnistNet
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, Subset

IMAGE_CLASSES = 1000
GENERATED_CLASSES = 10  # in generated images: the patterns of all 1000 would take 600 MB
AUX_WEIGHT = 0.4  # of a second classifier's loss (torchvision's recipe; Zhao et al. 2017, arXiv:1612.01105)


@dataclass(frozen=True)
class Data:
    """Pairs of an image and its class, or its pixels' classes."""

    source: str  # for people
    train: Dataset[Any]
    test: Dataset[Any]


@dataclass(frozen=True)
class Recipe:
    build: Callable[[argparse.Namespace], nn.Module]
    load: Callable[[argparse.Namespace], Data]
    classes: int
    batch_size: int  # of one rank
    lr: float  # of one rank
    image_size: int | None = None  # of generated images
    train_images: int | None = None  # None: all
    test_images: int | None = None

    @property
    def segments(self) -> bool:
        """Whether it finds a class for each pixel, instead of one for the image."""
        return self.load is scenes


def mnist(args: argparse.Namespace) -> Data:
    data = mnist_data.load(args.data_dir, args.allow_digits)
    return Data(
        f"{data.name} ({data.source})", head(data.train, args.train_images), head(data.test, args.test_images)
    )


def head(dataset: Dataset[Any], count: int | None) -> Dataset[Any]:
    """The first `count` items; all if None."""
    there: int = len(dataset)  # type: ignore[arg-type]
    return Subset(dataset, range(min(there, count or there)))


def images(args: argparse.Namespace) -> Data:
    def some(count: int, first: int) -> Dataset[Any]:
        return imagenet_data.GeneratedImages(count, args.image_size, GENERATED_CLASSES, first)

    return Data("generated images", some(args.train_images, 0), some(args.test_images, args.train_images))


def scenes(args: argparse.Namespace) -> Data:
    def some(count: int, first: int) -> Dataset[Any]:
        return scenes_data.GeneratedScenes(count, args.image_size, first)

    return Data("generated scenes", some(args.train_images, 0), some(args.test_images, args.train_images))


def loss_of(outputs: torch.Tensor | tuple[torch.Tensor, torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of the logits, plus that of a second classifier's, if there is one."""
    if isinstance(outputs, tuple):
        return loss_of(outputs[0], targets) + AUX_WEIGHT * loss_of(outputs[1], targets)
    return functional.cross_entropy(outputs, targets)


def logits_of(outputs: torch.Tensor | tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return outputs[0] if isinstance(outputs, tuple) else outputs


def of_images(build: Callable[[], nn.Module], lr: float) -> Recipe:
    return Recipe(lambda args: build(), images, IMAGE_CLASSES, 32, lr, 224, 1280, 320)


def of_scenes(name: str) -> Recipe:
    def build(args: argparse.Namespace) -> nn.Module:
        return deeplab.build(name, scenes_data.CLASSES, args.aux)

    amounts = (scenes_data.SIZE, scenes_data.TRAIN, scenes_data.TEST)
    return Recipe(build, scenes, scenes_data.CLASSES, 4, 0.01, *amounts)


RECIPES = {
    "mnist": Recipe(lambda args: MnistNet(), mnist, mnist_data.CLASSES, 64, 0.02),
    "resnet18": of_images(lambda: resnet.build("resnet18"), 0.0125),
    "resnet50": of_images(lambda: resnet.build("resnet50"), 0.0125),
    "vgg16": of_images(vgg.vgg16, 0.001),
    "deeplabv3_resnet18": of_scenes("deeplabv3_resnet18"),
    "deeplabv3_resnet101": of_scenes("deeplabv3_resnet101"),
}
