"""What the examples of this folder share: a network, loaders of handwritten digits, and a score."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import aacp

BUDGET = {"macs": 0.5}


class Net(nn.Module):
    """Two convolutions and a linear layer, for images of 8x8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(nn.functional.max_pool2d(self.first(x), 2)).mean((2, 3)))


def parts(train_size: int = 1200) -> tuple[TensorDataset, TensorDataset]:
    """Digits to train on, and others that judge the structures of the search."""
    batches = list(aacp.Batches.of(aacp.load_data("digits", holdout=0).train))
    images = torch.cat([inputs for inputs, _ in batches])
    labels = torch.cat([targets for _, targets in batches])
    held_out = slice(1200, len(images))
    return TensorDataset(images[:train_size], labels[:train_size]), TensorDataset(images[held_out], labels[held_out])


def loader(part: TensorDataset, shuffle: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(part, batch_size=32, shuffle=shuffle)


def accuracy(network: nn.Module, part: TensorDataset) -> float:
    """The share of correct labels; trainers have a validation of their own, which serves as well."""
    images, labels = part.tensors
    with torch.no_grad():
        return float((network.eval()(images).argmax(1) == labels).float().mean())
