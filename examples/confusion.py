"""A confusion matrix: how often a model predicts one class for another. Gives accuracy and mean IoU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional


class Confusion:
    """Counts of (true class, predicted class) and the summed loss, over this rank's examples.

    Ranks add up their counts before any division: the average of the ranks' accuracies, or of their IoU,
    differs if their shares differ. Counts are integers, so their sum is exact.
    """

    def __init__(self, classes: int, device: torch.device | str = "cpu") -> None:
        self.counts = torch.zeros(classes, classes, dtype=torch.int64, device=device)  # [true, predicted]
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """logits: [n, classes, ...]; targets: int64 [n, ...], negative if the class is unknown."""
        classes = len(self.counts)
        known = targets >= 0
        pairs = targets[known] * classes + logits.argmax(dim=1)[known]
        self.counts += torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
        self.loss_sum += functional.cross_entropy(logits, targets, reduction="sum").double()

    def reduce(self, sum_in_place: Callable[[torch.Tensor], object]) -> None:
        """Replace the counts by the sums over all ranks. `sum_in_place` sums a tensor over them."""
        sum_in_place(self.counts)
        sum_in_place(self.loss_sum)

    @property
    def total(self) -> int:
        """Number of images, or pixels, of known class."""
        return int(self.counts.sum())

    @property
    def correct(self) -> int:
        return int(self.counts.diagonal().sum())

    @property
    def accuracy(self) -> float:
        return self.correct / self.total

    @property
    def loss(self) -> float:
        """Mean cross-entropy, in nats."""
        return float(self.loss_sum) / self.total

    @property
    def mean_iou(self) -> float:
        """Intersection over union of each class, averaged over the classes that occur."""
        both = self.counts.diagonal()
        either = self.counts.sum(dim=0) + self.counts.sum(dim=1) - both
        return float((both[either > 0].double() / either[either > 0]).mean())
