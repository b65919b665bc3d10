"""Little networks and pictures on which training can be watched in milliseconds."""

from __future__ import annotations

import torch
from torch import nn

from aacp.data.images import Images

CLASSES = 4


def pictures(count: int = 96, seed: int = 0, padding: int = 1, flip: bool = False) -> Images:
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
