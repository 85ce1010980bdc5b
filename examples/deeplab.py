"""DeepLabV3 for segmentation, in plain torch: Chen et al. 2017 (arXiv:1706.05587), named as torchvision does.

A ResNet whose last stages keep an eighth of the resolution; then kernels that see the map with gaps of 12, 24
and 36 pixels, and its average; then a class for each pixel.
"""

from __future__ import annotations

import resnet
import torch
from torch import nn
from torch.nn import functional

CHANNELS = 256  # of all layers after the backbone
RATES = (12, 24, 36)  # dilations, for a map of an eighth of the image
OUTPUT_STRIDE = 8
NAMES = {f"deeplabv3_{name}": name for name in resnet.MODELS}  # -> the backbone


def convolved(inputs: int, outputs: int, size: int = 1, dilation: int = 1) -> nn.Sequential:
    """Convolution, normalisation, rectification."""
    return nn.Sequential(
        resnet.convolution(inputs, outputs, size, dilation=dilation), nn.BatchNorm2d(outputs), nn.ReLU()
    )


class Average(nn.Sequential):
    """[n, inputs, h, w] to [n, CHANNELS, h, w], constant over the map: its average.

    Training needs at least two images in a batch: normalisation of one would leave zeros.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), *convolved(inputs, CHANNELS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean: torch.Tensor = super().forward(x)
        return mean.expand(-1, -1, *x.shape[2:])


class AtrousPyramid(nn.Module):
    """[n, inputs, h, w] to [n, CHANNELS, h, w]: the map through five parallel kernels ("ASPP")."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList(
            [
                convolved(inputs, CHANNELS),
                *(convolved(inputs, CHANNELS, 3, rate) for rate in RATES),
                Average(inputs),
            ]
        )
        self.project = nn.Sequential(*convolved(len(self.convs) * CHANNELS, CHANNELS), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen: torch.Tensor = self.project(torch.cat([see(x) for see in self.convs], dim=1))
        return seen


class DeepLabV3(nn.Module):
    """[n, 3, h, w] of images to [n, classes, h, w] of logits.

    aux: adds a small second classifier after the third stage, which improves the gradient of the lower
    layers. In training mode the model then returns a tuple: its logits, and those of the second classifier.
    """

    def __init__(self, backbone: str, classes: int, aux: bool) -> None:
        super().__init__()
        self.backbone = resnet.build(backbone, output_stride=OUTPUT_STRIDE)
        last = self.backbone.fc.in_features
        self.backbone.fc = nn.Identity()  # pixels have classes, not images
        self.classifier = nn.Sequential(
            AtrousPyramid(last), *convolved(CHANNELS, CHANNELS, 3), nn.Conv2d(CHANNELS, classes, 1)
        )
        third = last // 2
        self.aux_classifier = (
            nn.Sequential(
                *convolved(third, third // 4, 3), nn.Dropout(0.1), nn.Conv2d(third // 4, classes, 1)
            )
            if aux
            else None
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        third, fourth = self.backbone.features(images)
        logits = enlarged(self.classifier(fourth), images)
        if self.aux_classifier is None or not self.training:
            return logits
        return logits, enlarged(self.aux_classifier(third), images)


def enlarged(logits: torch.Tensor, images: torch.Tensor) -> torch.Tensor:
    """The logits at the resolution of the images."""
    return functional.interpolate(logits, size=images.shape[2:], mode="bilinear", align_corners=False)


def build(name: str, num_classes: int = 21, aux: bool = False) -> DeepLabV3:
    """The model `name` of NAMES; 21 are the classes of PASCAL VOC with the background."""
    return DeepLabV3(NAMES[name], num_classes, aux)


def deeplabv3_resnet101(num_classes: int = 21, aux: bool = False) -> DeepLabV3:
    """58,630,997 parameters with 21 classes; 60,996,202 with `aux`, as torchvision publishes."""
    return build("deeplabv3_resnet101", num_classes, aux)
