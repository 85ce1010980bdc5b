"""How often a model takes one class for another: what accuracy and mean intersection over union come from."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional


class Confusion:
    """Counts of (true class, predicted class) and the summed loss, over what was added on this rank.

    What ranks count is added up before anything is divided: the average of the ranks' accuracies, or of
    their IoU, is another number wherever their shares differ. Counts are integers, so their sum is exact.
    """

    def __init__(self, classes: int, device: torch.device | str = "cpu") -> None:
        self.counts = torch.zeros(classes, classes, dtype=torch.int64, device=device)  # [true, predicted]
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)

    @torch.no_grad()
    def add(self, logits: torch.Tensor, targets: torch.Tensor) -> None:
        """logits: [n, classes, ...]; targets: int64 [n, ...], negative where nobody knows the class."""
        classes = len(self.counts)
        known = targets >= 0
        pairs = targets[known] * classes + logits.argmax(dim=1)[known]
        self.counts += torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
        self.loss_sum += functional.cross_entropy(logits, targets, reduction="sum").double()

    def reduce(self, sum_in_place: Callable[[torch.Tensor], object]) -> None:
        """Makes this the count of all ranks; `sum_in_place` adds a tensor up over them."""
        sum_in_place(self.counts)
        sum_in_place(self.loss_sum)

    @property
    def total(self) -> int:
        """Images, or pixels, whose class is known."""
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
        """Of each class, what is it and is called it, by what is either; the mean over classes that occur."""
        both = self.counts.diagonal()
        either = self.counts.sum(dim=0) + self.counts.sum(dim=1) - both
        return float((both[either > 0].double() / either[either > 0]).mean())
