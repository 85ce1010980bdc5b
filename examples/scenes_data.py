"""Generated pictures for segmentation, by default as many and as large as those of PASCAL VOC 2012.

Discs of the 20 classes are on a background, class 0; each class has a colour, hidden in noise. A thin ring
around each disc belongs to no class, as the outlines in VOC (255 in its files, torch's -100 here).
"""

from __future__ import annotations

import torch
from torch.utils.data import Dataset

CLASSES = 21  # 20 and the background
TRAIN, TEST = 1464, 1449  # pictures of VOC 2012's train and val lists
SIZE = 513  # pixels of height and width that DeepLab trains on
UNKNOWN = -100  # torch's cross_entropy ignores it
MOST_DISCS = 3
OUTLINE = 0.01  # half its width, as a fraction of the picture's
NOISE = 0.3  # standard deviation; colours are 0 to 1


class GeneratedScenes(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """`count` pictures, float32 [3, size, size] around 0, and their classes, int64 [size, size].

    Picture i is the same on every rank. first: number of the first picture, so that a test set has others.
    """

    def __init__(self, count: int, size: int = SIZE, first: int = 0) -> None:
        self._count, self._size, self._first = count, size, first
        self._colours = torch.rand(CLASSES, 3, generator=torch.Generator().manual_seed(0)) - 0.5

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= index < self._count:
            raise IndexError(index)
        random = torch.Generator().manual_seed(self._first + index)
        classes = torch.zeros(self._size, self._size, dtype=torch.int64)
        places = torch.arange(self._size) / self._size
        is_outline = torch.zeros_like(classes, dtype=torch.bool)
        for _ in range(int(torch.randint(1, MOST_DISCS + 1, (), generator=random))):
            down, across, radius = torch.rand(3, generator=random).tolist()
            radius = 0.1 + 0.25 * radius
            distance = torch.hypot(places[:, None] - down, places[None, :] - across)
            classes[distance < radius] = int(torch.randint(1, CLASSES, (), generator=random))
            is_outline[distance < radius] = False
            is_outline |= (distance - radius).abs() < OUTLINE
        noise = NOISE * torch.randn(3, self._size, self._size, generator=random)
        picture = self._colours[classes].permute(2, 0, 1) + noise
        return picture, classes.masked_fill(is_outline, UNKNOWN)
