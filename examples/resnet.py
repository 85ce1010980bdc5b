"""ResNet for images, in plain torch: He et al. 2016 (arXiv:1512.03385), with torchvision's parameter names.

The stride of a bottleneck is in its 3x3 convolution ("v1.5", Goyal et al. 2017, arXiv:1706.02677), and the
last normalisation of each block starts at zero, so that blocks begin as identities. The published ImageNet
recipes do both.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, dilation * (size // 2), dilation, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: [n, inputs, h, w] to [n, width, h/stride, w/stride]."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int, dilation: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, width, 3, stride, dilation), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, 1, dilation), nn.BatchNorm2d(width)
        self.downsample = shortcut(inputs, width, stride)
        nn.init.zeros_(self.bn2.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return functional.relu(y + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1 down to `width`, 3x3, 1x1 up to 4 `width`, beside a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int, dilation: int = 1) -> None:
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.bn1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride, dilation), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.downsample = shortcut(inputs, outputs, stride)
        nn.init.zeros_(self.bn3.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return functional.relu(y + self.downsample(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity if shapes agree, else a 1x1 convolution."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """[n, 3, h, w] of images to [n, classes] of logits; h and w are 224 in the paper, 32 is enough.

    output_stride: the ratio of the image's width to the last stage's: 32, or 16 or 8 for more detail. With 16
    or 8 the last stages have no stride, and dilated kernels that keep the receptive field (Chen et al. 2017,
    arXiv:1706.05587).
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: tuple[int, ...],
        classes: int = 1000,
        output_stride: int = 32,
    ) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(3, 64, 7, stride=2), nn.BatchNorm2d(64)
        inputs, reached, dilation = 64, 4, 1  # the first convolution and the pooling leave a quarter
        for stage, depth in enumerate(depths):
            width, blocks = 64 * 2**stage, []
            stride, first_dilation = 1, dilation
            if stage > 0 and reached < output_stride:
                stride, reached = 2, 2 * reached
            elif stage > 0:
                dilation *= 2
            for i in range(depth):
                is_first = i == 0
                blocks.append(
                    block(inputs, width, stride if is_first else 1, first_dilation if is_first else dilation)
                )
                inputs = width * block.expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def features(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The outputs of the third and the fourth stage."""
        x = functional.relu(self.bn1(self.conv1(images)))
        x = functional.max_pool2d(x, kernel_size=3, stride=2, padding=1)
        third = self.layer3(self.layer2(self.layer1(x)))
        return third, self.layer4(third)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.fc(self.features(images)[1].mean(dim=(2, 3)))
        return logits


MODELS: dict[str, tuple[type[BasicBlock] | type[Bottleneck], tuple[int, ...]]] = {
    "resnet18": (BasicBlock, (2, 2, 2, 2)),
    "resnet34": (BasicBlock, (3, 4, 6, 3)),
    "resnet50": (Bottleneck, (3, 4, 6, 3)),
    "resnet101": (Bottleneck, (3, 4, 23, 3)),
}


def build(name: str, classes: int = 1000, output_stride: int = 32) -> ResNet:
    block, depths = MODELS[name]
    return ResNet(block, depths, classes, output_stride)
