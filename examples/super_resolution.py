"""Prune a network that doubles the resolution of images, scored by PSNR and trained with the absolute error.

    python examples/super_resolution.py [FOLDER]    # runs/super_resolution by default; under a minute on one core

The output is an image, so there are no classes: distillation compares the images of the two networks.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import aacp

SIZE = 32  # of the large images; the small ones have half of it


class Residual(nn.Module):
    """Two convolutions; their result is added to the input. The first one is pruned freely."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(F.relu(self.first(x)))


class Upscaler(nn.Module):
    """Adds what bilinear interpolation misses. The four channels before the pixel shuffle form one output channel."""

    def __init__(self, width: int = 24, blocks: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.body = nn.Sequential(*[Residual(width) for _ in range(blocks)])
        self.head = nn.Sequential(nn.Conv2d(width, 4, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, small: Tensor) -> Tensor:
        return upscaled(small) + self.head(self.body(self.stem(small)))


class Bilinear(nn.Module):
    """Bilinear interpolation as a network, to compare with."""

    def forward(self, small: Tensor) -> Tensor:
        return upscaled(small)


def upscaled(small: Tensor) -> Tensor:
    """Images of twice the size by bilinear interpolation."""
    return F.interpolate(small, scale_factor=2.0, mode="bilinear", align_corners=False)


def images(count: int, seed: int) -> TensorDataset:
    """Small images of stripes of random width and direction inside of a disc, and the large images they come from."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")
    angle = 3.14 * torch.rand(count, 1, 1, generator=generator)
    waves = 3 + 5 * torch.rand(count, 1, 1, generator=generator)
    radius = 0.5 + 0.5 * torch.rand(count, 1, 1, generator=generator)
    stripes = torch.sign(torch.sin(waves * (rows * angle.cos() + columns * angle.sin())))
    large = torch.where(rows**2 + columns**2 < radius**2, stripes, 0.0)[:, None]
    return TensorDataset(F.avg_pool2d(large, 2), large)


def psnr(network: nn.Module, batches: aacp.Batches) -> float:
    """The peak signal-to-noise ratio in dB; the values of the images span 2."""
    squares = 0.0
    elements = 0
    with torch.no_grad():
        for small, large in batches:
            squares += float(((network(small) - large) ** 2).sum())
            elements += large.numel()
    return float(10 * torch.log10(torch.tensor(4 * elements / max(squares, 1e-9))))


def main(folder: str | Path = "runs/super_resolution", epochs: int = 8, evaluations: int = 20) -> aacp.Pruned:
    torch.set_num_threads(1)
    data = aacp.Data.of(images(320, seed=0), images(80, seed=1), holdout=0.2, name="super_resolution:images")
    adam = aacp.Recipe(epochs=epochs, batch_size=16, optimiser="adamw", lr=3e-3)
    torch.manual_seed(0)
    model = Upscaler()
    aacp.fit(model, data, adam, loss=F.l1_loss, score=psnr, folder=Path(folder) / "base")

    plan = aacp.Plan(evaluations=evaluations, recipe=replace(adam, distillation=0.5))
    place = Path(folder) / "pruned"
    pruned = aacp.prune(model, data, {"macs": 0.5}, place, plan=plan, score=psnr, loss=F.l1_loss)
    print(pruned)
    print(f"test score of bilinear interpolation: {psnr(Bilinear(), aacp.Batches.of(data.test)):.2f}")
    return pruned


if __name__ == "__main__":
    main(*sys.argv[1:2])
