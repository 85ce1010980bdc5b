"""The examples' networks have the published sizes and names, and every one of their parameters is trained."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
import torch
from example_runs import EXAMPLES
from torch import nn

sys.path.insert(0, str(EXAMPLES))
import deeplab
import resnet
import vgg

PUBLISHED: dict[str, tuple[Callable[[], nn.Module], int, int]] = {  # -> tensors and elements
    "resnet18": (lambda: resnet.build("resnet18"), 62, 11_689_512),
    "resnet34": (lambda: resnet.build("resnet34"), 110, 21_797_672),
    "resnet50": (lambda: resnet.build("resnet50"), 161, 25_557_032),
    "resnet101": (lambda: resnet.build("resnet101"), 314, 44_549_160),
    "vgg16": (vgg.vgg16, 32, 138_357_544),
    "deeplabv3_resnet101 with aux": (lambda: deeplab.deeplabv3_resnet101(aux=True), 340, 60_996_202),
    "deeplabv3_resnet50 with aux": (lambda: deeplab.build("deeplabv3_resnet50", aux=True), 187, 42_004_074),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name: str) -> None:
    build, tensors, elements = PUBLISHED[name]
    with torch.device("meta"):
        sizes = [parameter.numel() for parameter in build().parameters()]
    assert (len(sizes), sum(sizes)) == (tensors, elements)


def test_published_names() -> None:
    """Names in torchvision's state dictionaries: a few of each part."""
    with torch.device("meta"):
        names = {*deeplab.deeplabv3_resnet101(aux=True).state_dict()}
        of_vgg, of_resnet = ({*model.state_dict()} for model in (vgg.vgg16(), resnet.build("resnet50")))
    assert of_vgg >= {"features.28.weight", "classifier.0.weight", "classifier.6.bias"}
    assert of_resnet >= {
        *("conv1.weight", "layer1.0.downsample.1.running_var", "layer4.2.conv3.weight", "fc.bias")
    }
    assert names >= {
        *("backbone.conv1.weight", "backbone.layer4.2.conv3.weight", "backbone.layer3.22.bn3.running_var"),
        *("classifier.0.convs.0.0.weight", "classifier.0.convs.3.1.bias", "classifier.0.convs.4.2.weight"),
        *("classifier.0.project.0.weight", "classifier.1.weight", "classifier.4.bias"),
        "aux_classifier.4.bias",
    }
    assert not any("fc" in name for name in names)


def test_the_backbone_keeps_an_eighth_of_the_resolution() -> None:
    """Dilated kernels replace strides, as in torchvision's backbone."""
    backbone = resnet.build("resnet50", output_stride=8)
    gaps = [block.conv2.dilation[0] for block in (*backbone.layer3, *backbone.layer4)]
    assert gaps == [1, 2, 2, 2, 2, 2, 2, 4, 4]
    third, fourth = backbone.features(torch.randn(1, 3, 65, 33))
    assert third.shape == (1, 1024, 9, 5) and fourth.shape == (1, 2048, 9, 5)
    assert resnet.build("resnet18").features(torch.randn(1, 3, 64, 64))[1].shape == (1, 512, 2, 2)


def test_a_gap_leaves_the_weights_of_a_resnet_in_place() -> None:
    """A published ResNet's weights fit, at any resolution: dilation changes no shape."""
    ordinary, dilated = (resnet.build("resnet18", output_stride=stride).state_dict() for stride in (32, 8))
    shapes = [{name: tensor.shape for name, tensor in one.items()} for one in (ordinary, dilated)]
    assert shapes[0] == shapes[1]


def test_every_parameter_of_resnet50_gets_a_gradient() -> None:
    model = resnet.build("resnet50", classes=5)
    logits = model(torch.randn(2, 3, 40, 56))
    logits.sum().backward()
    assert logits.shape == (2, 5)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_every_parameter_of_a_segmentation_model_gets_a_gradient() -> None:
    model = deeplab.build("deeplabv3_resnet18", num_classes=5, aux=True)
    logits, second = model(torch.randn(2, 3, 33, 41))
    assert logits.shape == second.shape == (2, 5, 33, 41)
    (logits.sum() + second.sum()).backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.eval()(torch.randn(1, 3, 33, 33)).shape == (1, 5, 33, 33), "one tensor, of one image too"
