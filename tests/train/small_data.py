"""Small networks and images, on which training takes milliseconds."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache

import torch
from torch import nn
from torch.utils.data import TensorDataset

import aacp
from aacp.data.images import Images
from aacp.zoo.data import load_data

CLASSES = 4


def small_images(count: int = 96, seed: int = 0, padding: int = 1, flip: bool = False) -> Images:
    """Noisy copies of one pattern for each class."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randint(0, 180, (CLASSES, 2, 6, 6), generator=torch.Generator().manual_seed(7))
    labels = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randint(0, 75, (count, 2, 6, 6), generator=generator)
    return Images((patterns[labels] + noise).byte(), labels, (0.4, 0.5), (0.2, 0.3), padding, flip)


def network(seed: int = 0, dropout: float = 0.0, classes: int = CLASSES) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1, bias=False),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(24, classes),
    )


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Equal to the last bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@cache
def _odd_resnet(name: str, size: tuple[int, int, int]) -> nn.Module:
    torch.manual_seed(0)
    model = aacp.build_model(name).eval()
    graph = aacp.trace(model, torch.randn(2, *size))
    return aacp.shrink(model, graph, [max(1, group.width * 5 // 8 - 1) for group in graph.free]).train()


def odd_resnet(name: str = "digits_resnet", size: tuple[int, int, int] = (1, 8, 8)) -> nn.Module:
    """A ResNet of the zoo with padded shortcuts, cut to odd widths."""
    return copy.deepcopy(_odd_resnet(name, size))


def digits(count: int = 64) -> Images:
    """The first of the embedded digits."""
    images = load_data("digits").train
    return replace(images, pixels=images.pixels[:count], labels=images.labels[:count])


def in_double(count: int, size: tuple[int, int, int]) -> TensorDataset:
    """Noise with labels, in double precision."""
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, *size, generator=generator, dtype=torch.float64)
    return TensorDataset(inputs, torch.randint(10, (count,), generator=generator))


def farthest(one: nn.Module, other: nn.Module) -> float:
    """The largest difference between two networks' weights and statistics."""
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    return max(float((ours[name].double() - theirs[name].double()).abs().max()) for name in ours)
