"""Images for the ImageNet recipe: generated ones, or your own shards in a folder.

A shard is a file `<anything>.pt` that torch.save wrote: {"images": uint8 [n, 3, h, w], "labels": int64 [n]},
all of one size. It is mapped into memory, so a folder may be larger than memory.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.data import ConcatDataset, Dataset

MEAN = torch.tensor([0.485, 0.456, 0.406]).reshape(3, 1, 1)  # of ImageNet's pixels, scaled to 0..1
STD = torch.tensor([0.229, 0.224, 0.225]).reshape(3, 1, 1)

Sample = tuple[torch.Tensor, int]


class GeneratedImages(Dataset[Sample]):
    """`count` images, each a coarse pattern of its class with noise; image i is the same on every rank.

    first: number of the first image, so that a validation set can have other images of the same classes.
    """

    def __init__(self, count: int, size: int, classes: int, first: int = 0) -> None:
        self._count, self._first, self._classes = count, first, classes
        coarse = torch.randn(classes, 3, 4, 4, generator=torch.Generator().manual_seed(0))
        self._patterns = functional.interpolate(coarse, size=(size, size), mode="bilinear")

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Sample:
        if not 0 <= index < self._count:
            raise IndexError(index)
        number = self._first + index
        pattern = self._patterns[number % self._classes]
        noise = torch.randn(pattern.shape, generator=torch.Generator().manual_seed(number))
        return pattern + noise, number % self._classes


class Shard(Dataset[Sample]):
    """The images of one file, normalised."""

    def __init__(self, path: Path) -> None:
        content = torch.load(path, mmap=True, weights_only=True)
        self._images, self._labels = content["images"], content["labels"]
        if self._images.dtype != torch.uint8 or len(self._images) != len(self._labels):
            raise ValueError(
                f"{path}: expected uint8 images and as many labels, found {self._images.dtype} of shape "
                f"{tuple(self._images.shape)} and {len(self._labels)} labels."
            )

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, index: int) -> Sample:
        return (self._images[index] / 255 - MEAN) / STD, int(self._labels[index])


def shards(folder: str) -> Dataset[Sample]:
    """All shards of a folder, in the order of their names. FileNotFoundError if there are none."""
    paths = sorted(Path(folder).glob("*.pt"))
    if not paths:
        raise FileNotFoundError(
            f"{folder} holds no shard (*.pt); examples/imagenet_data.py says what one is."
        )
    return ConcatDataset([Shard(path) for path in paths])
