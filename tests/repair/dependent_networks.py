"""Networks in which the last channels of the layer `stem` are multiples of the first ones, even after a ReLU.

Whatever reads the stem can therefore be repaired exactly when these channels are removed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from graph.micro_networks import Block, chain, conv

KEPT = 4  # the first channels of the stem; the other ones are multiples of these
WIDTH = 8


def _dense() -> nn.Module:
    return chain(stem=conv(3, WIDTH), relu=nn.ReLU(), reader=conv(WIDTH, 6), head=conv(6, 5, 1))


def _grouped() -> nn.Module:
    reader = nn.Conv2d(WIDTH, 6, 3, groups=2)
    return chain(stem=conv(3, WIDTH), relu=nn.ReLU(), reader=reader, head=conv(6, 5, 1))


def _transposed() -> nn.Module:
    reader = nn.ConvTranspose2d(WIDTH, 6, 3, stride=2, padding=1)
    return chain(stem=conv(3, WIDTH), relu=nn.ReLU(), reader=reader, head=conv(6, 5, 1))


def _grouped_transposed() -> nn.Module:
    reader = nn.ConvTranspose2d(WIDTH, 6, 3, stride=2, groups=2)
    return chain(stem=conv(3, WIDTH), relu=nn.ReLU(), reader=reader, head=conv(6, 5, 1))


def _without_bias() -> nn.Module:
    return chain(stem=conv(3, WIDTH), relu=nn.ReLU(), reader=conv(WIDTH, 6, bias=False), head=conv(6, 5, 1))


def _flattened() -> nn.Module:
    pool = nn.AvgPool2d(4)
    return chain(stem=conv(3, WIDTH), relu=nn.ReLU(), pool=pool, flat=nn.Flatten(), reader=nn.Linear(4 * WIDTH, 5))


def _two_readers() -> nn.Module:
    def run(self: nn.Module, x: Tensor) -> Tensor:
        y = self.stem(x).relu()
        return self.head(self.one(y) + self.other(y))

    return Block(run, stem=conv(3, WIDTH), one=conv(WIDTH, 6), other=conv(WIDTH, 6, 1), head=conv(6, 5, 1))


def _concatenated() -> nn.Module:
    def run(self: nn.Module, x: Tensor) -> Tensor:
        return self.reader(torch.cat([self.other(x), self.stem(x).relu()], dim=1))

    return Block(run, stem=conv(3, WIDTH), other=conv(3, 6), reader=conv(WIDTH + 6, 5))


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "dense": _dense,
    "grouped": _grouped,
    "transposed": _transposed,
    "grouped_transposed": _grouped_transposed,
    "without_bias": _without_bias,
    "flattened": _flattened,
    "two_readers": _two_readers,
    "concatenated": _concatenated,
}


def build(name: str) -> nn.Module:
    """A network of the table; in a grouped one the multiples are those of the same group of the reader."""
    torch.manual_seed(0)
    model = NETWORKS[name]().eval()
    stem = model.get_submodule("stem")
    first = kept_channels(name)
    last = [channel for channel in range(WIDTH) if channel not in first]
    factors = torch.tensor([0.5, 2.0, 1.5, 0.7])
    with torch.no_grad():
        stem.weight[last] = stem.weight[first] * factors[:, None, None, None]
        stem.bias[last] = stem.bias[first] * factors
    return model


def kept_channels(name: str) -> list[int]:
    """The channels of the stem that the others are multiples of."""
    return [0, 1, 4, 5] if name.startswith("grouped") else [0, 1, 2, 3]
