"""The networks of the MNIST examples: small enough for one core.

`conv`: two 5x5 convolutions in the manner of LeNet-5 (LeCun et al. 1998), which reach 98.5 % after one epoch.
46,730 parameters, so 187 KB of gradients in each step. In a trial of one epoch, 3x3 kernels took the same
time and gave 0.2 to 0.3 points less.

`mlp`: three fully connected layers, to make communication visible. 1,863,690 parameters, so 7.5 MB of
gradients in each step, which 1 Gbit/s carries in 60 ms, and little to compute.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional


class MnistNet(nn.Module):
    """[n, 1, 28, 28] of normalised pixels to [n, 10] of logits."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 16, kernel_size=5)
        self.second = nn.Conv2d(16, 32, kernel_size=5)
        self.hidden = nn.Linear(32 * 4 * 4, 64)
        self.logits = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = functional.relu(functional.max_pool2d(self.first(images), 2))  # 28 -> 24 -> 12
        x = functional.relu(functional.max_pool2d(self.second(x), 2))  # 12 -> 8 -> 4
        x = functional.relu(self.hidden(x.flatten(1)))
        logits: torch.Tensor = self.logits(x)
        return logits


def perceptron() -> nn.Module:
    """Like MnistNet, with fully connected layers."""
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(28 * 28, 1024), nn.ReLU()),
        *(nn.Linear(1024, 1024), nn.ReLU()),
        nn.Linear(1024, 10),
    )


MODELS: dict[str, Callable[[], nn.Module]] = {"conv": MnistNet, "mlp": perceptron}
