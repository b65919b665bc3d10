"""Prune a network that recognises spoken commands in raw sound, here tones that rise, fall or return.

    python examples/speech.py [FOLDER]    # runs/speech by default; under a minute on one core

The network takes sound of any length: `aacp.trace` verifies its cuts on another length, too.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import aacp

RATE, LENGTH = 4000, 1600  # samples per second, samples of a command
COMMANDS = ("up", "down", "up and down", "down and up")


def separable(width: int, stride: int = 1) -> nn.Sequential:
    """A convolution of each channel over time, then one across channels; both lose the same channels."""
    return nn.Sequential(
        nn.Conv1d(width, width, 9, stride, padding=4, groups=width, bias=False),
        nn.Conv1d(width, width, 1, bias=False),
        nn.BatchNorm1d(width),
        nn.ReLU(),
    )


class Listener(nn.Module):
    """A bank of learned filters, three blocks of which the middle one is residual, and a mean over time."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.filters = nn.Sequential(nn.Conv1d(1, width, 64, 16, padding=32), nn.BatchNorm1d(width), nn.ReLU())
        self.first = separable(width, stride=2)
        self.middle = separable(width)
        self.last = separable(width, stride=2)
        self.head = nn.Linear(width, len(COMMANDS))

    def forward(self, sound: Tensor) -> Tensor:
        x = self.first(self.filters(sound))
        return self.head(self.last(x + self.middle(x)).mean(2))


def commands(count: int, seed: int) -> TensorDataset:
    """Noisy sounds whose pitch moves as the command says, and the number of the command."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(len(COMMANDS), (count,), generator=generator)
    time = torch.linspace(0, 1, LENGTH)
    there_and_back = 1 - (2 * time - 1).abs()
    courses = torch.stack([time, 1 - time, there_and_back, 1 - there_and_back])[labels]
    lowest = 150 + 200 * torch.rand(count, 1, generator=generator)
    pitch = lowest * (1 + 1.5 * courses)
    phase = 2 * math.pi * pitch.cumsum(1) / RATE
    noise = 0.3 * torch.randn(count, LENGTH, generator=generator)
    return TensorDataset((phase.sin() + noise)[:, None], labels)


def main(folder: str | Path = "runs/speech", epochs: int = 6, evaluations: int = 20) -> aacp.Pruned:
    torch.set_num_threads(1)
    data = aacp.Data.of(commands(480, seed=0), commands(160, seed=1), holdout=0.2, name="speech:commands")
    recipe = aacp.Recipe(epochs=epochs, batch_size=16, optimiser="adamw", lr=5e-3)
    torch.manual_seed(0)
    model = Listener()
    aacp.fit(model, data, recipe, folder=Path(folder) / "base")

    plan = aacp.Plan(evaluations=evaluations, recipe=replace(recipe, distillation=0.5))
    pruned = aacp.prune(model, data, {"macs": 0.5}, Path(folder) / "pruned", plan=plan)
    print(pruned)
    return pruned


if __name__ == "__main__":
    main(*sys.argv[1:2])
