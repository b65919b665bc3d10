"""Prune a torchvision network with your own loader: ResNet18 on small images, a third fewer MACs and parameters.

    python examples/torchvision_network.py [FOLDER]    # runs/torchvision by default; under a minute on one core

The weights are trained only briefly, so that nothing has to be downloaded: this shows how it works, and its accuracy is
not a result. With trained weights it is one command:

    aacp prune torchvision:resnet18 --weights resnet18.pth --data imagefolder:/data/imagenet --prune-macs 0.33
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

import aacp

SIZE = 32


class Blobs(Dataset[tuple[Tensor, int]]):
    """Images with a bright blob in one of four corners, drawn when they are read."""

    classes = ("upper left", "upper right", "lower left", "lower right")

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        label, generator = index % 4, torch.Generator().manual_seed(self.seed * self.count + index)
        picture = torch.randn(3, SIZE, SIZE, generator=generator)
        down, across = torch.randint(2, 8, (2,), generator=generator).tolist()
        down, across = down + SIZE // 2 * (label // 2), across + SIZE // 2 * (label % 2)
        picture[:, down : down + 6, across : across + 6] += 2
        return picture, label


def build() -> nn.Module:
    """ResNet18 with four classes; aacp.build_model also imports torchvision if torch is a CPU-only build."""
    model = aacp.build_model("torchvision:resnet18")
    model.fc = nn.Linear(512, len(Blobs.classes))
    return model


def loaders() -> tuple[DataLoader[tuple[Tensor, int]], DataLoader[tuple[Tensor, int]]]:
    return DataLoader(Blobs(160, seed=1), batch_size=16, shuffle=True), DataLoader(Blobs(64, seed=2), 32)


def main(folder: str | Path = "runs/torchvision", epochs: int = 3, evaluations: int = 12) -> aacp.Pruned:
    torch.set_num_threads(1)
    data = aacp.Data.of(*loaders(), holdout=0.2, name="torchvision_network:loaders")
    recipe = aacp.Recipe(epochs=epochs, batch_size=16, lr=0.02, weight_decay=5e-4)
    torch.manual_seed(0)
    model = build()
    aacp.fit(model, data, recipe, folder=Path(folder) / "base")

    plan = aacp.Plan(
        pruning_step=8,  # widths in multiples of eight, which suit most hardware
        evaluations=evaluations,
        recipe=replace(recipe, lr=0.01, distillation=0.5),
        calibration_images=64,
    )
    pruned = aacp.prune(model, data, {"macs": 0.33, "params": 0.33}, Path(folder) / "pruned", plan=plan)
    print(pruned)
    return pruned


if __name__ == "__main__":
    main(*sys.argv[1:2])
