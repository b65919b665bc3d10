"""Networks for small images: VGG16, ResNet and MobileNetV2 for CIFAR-10, and a ResNet for the digits.

The weights of the ResNets are named as in the public CIFAR-10 checkpoints (`conv1`, `layer1.0.bn2`, `linear`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from aacp.errors import InvalidOption

CIFAR = (3, 32, 32)
DIGITS = (1, 8, 8)
VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))  # widths between poolings
# Sandler et al. 2018, Table 2: expansion, output width, blocks, stride. The second stage keeps the size of the image.
MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class VGG(nn.Module):
    """3x3 convolutions with batch norm in stages that halve the image, then one linear layer."""

    def __init__(self, stages: Sequence[Sequence[int]], classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = CIFAR[0]
        for position, widths in enumerate(stages):
            layers += [nn.MaxPool2d(2)] if position else []
            for width in widths:
                layers += [_convolution(channels, width), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
                channels = width
        self.features = nn.Sequential(*layers)
        self.linear = nn.Linear(channels, classes)
        self.default_cfg = {"input_size": CIFAR}
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.features(x).mean((2, 3)))  # type: ignore[no-any-return]


class ResNet(nn.Module):
    """A stem, three stages of `blocks` residual blocks, the last two of which halve the image, and a linear head.

    Where size or width changes, the shortcut is padded with zeros (option A of He et al.); with `projection` it is a
    1x1 convolution (option B).
    """

    def __init__(
        self,
        blocks: int,
        widths: Sequence[int] = (16, 32, 64),
        classes: int = 10,
        projection: bool = False,
        input_size: tuple[int, int, int] = CIFAR,
    ) -> None:
        super().__init__()
        self.conv1 = _convolution(input_size[0], widths[0])
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.layer1 = _stage(blocks, widths[0], widths[0], 1, projection)
        self.layer2 = _stage(blocks, widths[0], widths[1], 2, projection)
        self.layer3 = _stage(blocks, widths[1], widths[2], 2, projection)
        self.linear = nn.Linear(widths[2], classes)
        self.default_cfg = {"input_size": input_size}
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))  # type: ignore[no-any-return]


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with batch norm, added to a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, projection: bool) -> None:
        super().__init__()
        self.conv1 = _convolution(inputs, outputs, stride=stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _convolution(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = _shortcut(inputs, outputs, stride, projection)

    def forward(self, x: Tensor) -> Tensor:
        inner = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(inner)) + self.shortcut(x))


class PaddedShortcut(nn.Module):
    """Every `stride`-th pixel, with channels of zeros before and after (option A): it has no weights."""

    def __init__(self, stride: int, before: int, after: int) -> None:
        super().__init__()
        self.stride, self.before, self.after = stride, before, after

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


class MobileNetV2(nn.Module):
    """A stem, stages of inverted residual blocks, a wide 1x1 convolution and a linear head."""

    def __init__(self, stages: Sequence[tuple[int, int, int, int]] = MOBILENET_V2, classes: int = 10) -> None:
        super().__init__()
        stem = 32
        head = 1280
        channels = stem
        blocks: list[nn.Module] = []
        for expansion, width, repeats, stride in stages:
            for position in range(repeats):
                blocks.append(InvertedResidual(channels, width, expansion, 1 if position else stride))
                channels = width
        self.stem = _normalised(CIFAR[0], stem, 3)
        self.blocks = nn.Sequential(*blocks)
        self.head = _normalised(channels, head, 1)
        self.linear = nn.Linear(head, classes)
        self.default_cfg = {"input_size": CIFAR}
        _initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.head(self.blocks(self.stem(x))).mean((2, 3)))  # type: ignore[no-any-return]


class InvertedResidual(nn.Module):
    """A 1x1 convolution that widens, a depthwise 3x3 convolution and a linear 1x1 convolution that narrows.

    The input is added where size and width stay the same.
    """

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int) -> None:
        super().__init__()
        inner = inputs * expansion
        widen = [_normalised(inputs, inner, 1)] if expansion > 1 else []
        narrow = nn.Sequential(nn.Conv2d(inner, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.layers = nn.Sequential(*widen, _normalised(inner, inner, 3, stride, groups=inner), narrow)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.has_shortcut else self.layers(x)  # type: ignore[no-any-return]


def vgg16(classes: int = 10) -> VGG:
    """VGG16 for 32x32 images: 13 convolutions and one linear layer, 313 M MACs and 14.7 M parameters."""
    return VGG(VGG16, classes)


def resnet(depth: int, classes: int = 10, projection: bool = False) -> ResNet:
    """A ResNet for 32x32 images with `depth` = 6n + 2 layers."""
    if depth < 8 or (depth - 2) % 6:
        raise InvalidOption(f"A CIFAR ResNet cannot have {depth} layers. Take 6n + 2: 20, 32, 44, 56, 110.")
    return ResNet((depth - 2) // 6, classes=classes, projection=projection)


def digits_resnet(classes: int = 10) -> ResNet:
    """A ResNet with eight layers for the 8x8 digits."""
    return ResNet(1, classes=classes, input_size=DIGITS)


# The built-in networks by the names that `build_model` and the command line accept.
NETWORKS: Mapping[str, Callable[[], nn.Module]] = {
    "vgg16": vgg16,
    "mobilenet_v2": MobileNetV2,
    "resnet20": partial(resnet, 20),
    "resnet56": partial(resnet, 56),
    "resnet110": partial(resnet, 110),
    "resnet20-projection": partial(resnet, 20, projection=True),
    "resnet56-projection": partial(resnet, 56, projection=True),
    "resnet110-projection": partial(resnet, 110, projection=True),
    "digits_resnet": digits_resnet,
}


def _stage(blocks: int, inputs: int, outputs: int, stride: int, projection: bool) -> nn.Sequential:
    rest = [ResidualBlock(outputs, outputs, 1, projection) for _ in range(blocks - 1)]
    return nn.Sequential(ResidualBlock(inputs, outputs, stride, projection), *rest)


def _shortcut(inputs: int, outputs: int, stride: int, projection: bool) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    if projection:
        return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
    before = (outputs - inputs) // 2
    return PaddedShortcut(stride, before, outputs - inputs - before)


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def _normalised(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU6(inplace=True))


def _initialise(network: nn.Module) -> None:
    """Normal weights whose variance keeps that of the signal through each ReLU (He et al. 2015)."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
