"""Prune your own network with your own loaders: half of its MACs, and a limit on the size of its weights.

    python examples/own_model.py [FOLDER]    # runs/own_model by default; about half a minute on one core

At the end the pruned weights are loaded into the original class, as an application would do. The command line does the
same in this folder with the functions below, named by their module (the weights are those that the example has saved).
There --max-size limits the whole file, with its header, and here weight_bytes limits the weights alone:

    aacp prune own_model:Net --weights runs/own_model/base/weights.safetensors --data own_model:loaders \
        --prune-macs 0.5 --max-size 25kB --evaluations 30 --epochs 5 --run runs/own_model_again
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import aacp

CLASSES, SIZE = 4, 16


class Net(nn.Module):
    """A residual block between two convolutions; any network that torch.export can follow works."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.first = nn.Sequential(nn.Conv2d(16, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(24, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16))
        self.last = nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, bias=False), nn.BatchNorm2d(32), nn.ReLU())
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.second(self.first(x)))
        return self.head(self.last(x).mean((2, 3)))


def stripes(count: int, seed: int) -> TensorDataset:
    """Noisy images of stripes in one of four directions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    angles, phases = labels * torch.pi / CLASSES, 6.28 * torch.rand(count, generator=generator)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    along = angles.cos()[:, None, None] * x + angles.sin()[:, None, None] * y
    pictures = (along + phases[:, None, None]).sin() + 2 * torch.randn(count, SIZE, SIZE, generator=generator)
    return TensorDataset(pictures[:, None], labels)


def loaders() -> tuple[DataLoader[tuple[Tensor, ...]], DataLoader[tuple[Tensor, ...]]]:
    """Loaders of training and test data; the hold-out for the search is taken from the training data."""
    return DataLoader(stripes(960, seed=0), batch_size=32, shuffle=True), DataLoader(stripes(400, seed=1), 100)


def main(folder: str | Path = "runs/own_model", epochs: int = 5, evaluations: int = 30) -> aacp.Pruned:
    torch.set_num_threads(1)  # a network this small is not faster with more
    data = aacp.Data.of(*loaders(), holdout=0.2, name="own_model:loaders")
    recipe = aacp.Recipe(epochs=epochs, batch_size=32, lr=0.05, nesterov=True, weight_decay=5e-4)
    torch.manual_seed(0)
    model = Net()
    aacp.fit(model, data, recipe, folder=Path(folder) / "base")  # or use a network that is already trained

    plan = aacp.Plan(evaluations=evaluations, recipe=replace(recipe, lr=0.02, distillation=0.5))
    budget = {"macs": 0.5, "weight_bytes": "25kB"}  # a share to remove, and the largest size allowed
    pruned = aacp.prune(model, data, budget, Path(folder) / "pruned", plan=plan)
    print(pruned)

    smaller = aacp.load(Path(folder) / "pruned", into=Net())
    print(f"loaded into {type(smaller).__name__}: {smaller.first[0]}")
    return pruned


if __name__ == "__main__":
    main(*sys.argv[1:2])
