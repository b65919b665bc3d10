"""A small trained network and its loaders, for the code of the documents."""

from __future__ import annotations

import copy
from functools import cache

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import aacp


class SmallNetwork(nn.Module):
    """Two convolutions and a linear layer, for images of 8x8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(nn.functional.max_pool2d(self.first(x), 2)).mean((2, 3)))


@cache
def digits(count: int) -> TensorDataset:
    """The first digits of the training data as tensors."""
    pairs = list(aacp.Batches.of(aacp.load_data("digits").train, images=count))
    return TensorDataset(torch.cat([inputs for inputs, _ in pairs]), torch.cat([labels for _, labels in pairs]))


def loaders(count: int = 320) -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """Three quarters to train on, the rest to test on."""
    whole = digits(count)
    train, test = (TensorDataset(*whole[part]) for part in (slice(0, 3 * count // 4), slice(3 * count // 4, count)))
    return DataLoader(train, batch_size=32, shuffle=True), DataLoader(test, batch_size=40)


def trained_network() -> SmallNetwork:
    """A copy of the network that is trained once for all pages."""
    return copy.deepcopy(_trained())


@cache
def _trained() -> SmallNetwork:
    torch.manual_seed(0)
    network = SmallNetwork()
    aacp.fit(network, loaders()[0], aacp.Recipe(epochs=3, batch_size=32, lr=0.05))
    return network
