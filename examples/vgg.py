"""VGG for images, in plain torch: Simonyan and Zisserman 2015 (arXiv:1409.1556), named as torchvision does.

138 million parameters with few multiplications each: of the common networks it has the most data to send
relative to its computation.
"""

from __future__ import annotations

import torch
from torch import nn

SIXTEEN = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # (channels, convolutions) of each stage: "D"


class VGG(nn.Module):
    """[n, 3, h, w] of images to [n, classes] of logits; h and w are 224 in the paper, at least 32."""

    def __init__(self, stages: tuple[tuple[int, int], ...], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for channels, convolutions in stages:
            for _ in range(convolutions):
                layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)  # no effect on images of 224 pixels
        self.classifier = nn.Sequential(
            *(nn.Linear(inputs * 7 * 7, 4096), nn.ReLU(inplace=True), nn.Dropout()),
            *(nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout()),
            nn.Linear(4096, classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return logits


def vgg16(num_classes: int = 1000) -> VGG:
    """VGG-16, the paper's configuration D: 138,357,544 parameters with 1000 classes."""
    return VGG(SIXTEEN, num_classes)
