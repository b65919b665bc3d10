"""A run that takes less than a second: a network with two convolutions and 32 images."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import aacp
from aacp.pipeline.pruned import Pruned

CLASSES = 4
BUDGET = {"macs": 0.4}
PLAN = aacp.Plan(
    evaluations=10, calibration_images=16, recipe=aacp.Recipe(epochs=2, batch_size=8, lr=0.01), export=False
)
EXPORTING = replace(PLAN, export=True)
UNTRAINED = replace(PLAN, recipe=None, mimic=2)


class Tiny(nn.Module):
    """Two convolutions with batch norms, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, stride=2)
        self.bn2 = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        return self.head(x.mean((2, 3)))


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return Tiny()


def data() -> aacp.Data:
    """Random images with random labels in three parts."""
    return aacp.Data(_part(32, 0), _part(16, 1), _part(16, 2), "noise")


def _part(images: int, seed: int) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(torch.randn(images, 1, 8, 8, generator=generator), torch.arange(images) % CLASSES)


def pruned(folder: Path, seed: int = 0, **others: Any) -> Pruned:
    """Prune the network of a seed in a folder; other arguments are those of aacp.prune."""
    arguments: dict[str, Any] = {"budget": BUDGET, "plan": PLAN, "device": "cpu", **others}
    return aacp.prune(network(seed), data(), folder=folder, **arguments)


def killed(folder: Path, epochs: int, plan: aacp.Plan) -> None:
    """Prune in this process, which is killed as soon as a number of epochs of training are over."""
    torch.set_num_threads(1)
    left = epochs

    def count(event: aacp.Event) -> None:
        nonlocal left
        left -= event.kind == "epoch"
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    with aacp.listen(count):
        pruned(folder, plan=plan)
