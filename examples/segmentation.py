"""Prune a small U-Net on images of shapes, scored by mean IoU instead of accuracy and trained with its own loss.

    python examples/segmentation.py [FOLDER]    # runs/segmentation by default; under a minute on one core

The same on the command line, in this folder:

    aacp prune segmentation:UNet --weights runs/segmentation/base/weights.safetensors --data segmentation:pictures \
        --metric segmentation:mean_iou --loss segmentation:loss --prune-macs 0.5 --evaluations 20 --epochs 5 \
        --batch-size 16 --run runs/segmentation_again

`main(model=...)` takes any other network for these images, such as one of a library for segmentation:

    segmentation_models_pytorch.Unet("resnet18", encoder_weights=None, in_channels=1, classes=3)
    monai.networks.nets.BasicUNet(spatial_dims=2, in_channels=1, out_channels=3, features=(8, 8, 16, 16, 32, 8))
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

CLASSES, SIZE = 3, 32  # background, disc, square


def block(channels: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())


class UNet(nn.Module):
    """Two levels down and two up. The skip connections are concatenated; their channels are pruned at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.above, self.middle, self.below = block(1, 16), block(16, 24), block(24, 32)
        self.up_middle, self.up_above = block(32 + 24, 24), block(24 + 16, 16)
        self.head = nn.Conv2d(16, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        above = self.above(x)
        middle = self.middle(F.max_pool2d(above, 2))
        below = self.below(F.max_pool2d(middle, 2))
        middle = self.up_middle(torch.cat([F.interpolate(below, scale_factor=2.0), middle], 1))
        return self.head(self.up_above(torch.cat([F.interpolate(middle, scale_factor=2.0), above], 1)))


def shapes(count: int, seed: int) -> TensorDataset:
    """Noisy images with a disc and a square each, and the class of every pixel."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    centres = torch.randint(6, SIZE - 6, (count, 2, 2, 1, 1), generator=generator)
    sizes = torch.randint(3, 7, (count, 2, 1, 1), generator=generator)
    down, across = (rows - centres[:, :, 0]).abs(), (columns - centres[:, :, 1]).abs()
    discs = down[:, 0] ** 2 + across[:, 0] ** 2 <= sizes[:, 0] ** 2
    squares = torch.maximum(down[:, 1], across[:, 1]) < sizes[:, 1]
    labels = torch.where(squares, 2, discs.long())
    pictures = torch.tensor([0.0, 1.0, -1.0])[labels] + 0.7 * torch.randn(count, SIZE, SIZE, generator=generator)
    return TensorDataset(pictures[:, None], labels)


def pictures() -> tuple[TensorDataset, TensorDataset]:
    """Training and test data."""
    return shapes(320, seed=0), shapes(120, seed=1)


def mean_iou(network: nn.Module, batches: aacp.Batches) -> float:
    """Intersection over union of predicted and true pixels, averaged over classes; higher is better."""
    common, either = torch.zeros(CLASSES), torch.zeros(CLASSES)
    with torch.no_grad():
        for inputs, labels in batches:
            found = network(inputs).argmax(1)
            for label in range(CLASSES):
                is_found, is_there = found == label, labels == label
                common[label] += (is_found & is_there).sum().cpu()
                either[label] += (is_found | is_there).sum().cpu()
    return float((common / either.clamp(min=1)).mean())


def loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy of the pixels, with a larger weight for shapes than for the background."""
    return F.cross_entropy(outputs, labels, weight=torch.tensor([0.5, 1.0, 1.0], device=outputs.device))


def main(
    folder: str | Path = "runs/segmentation", epochs: int = 5, evaluations: int = 20, model: nn.Module | None = None
) -> aacp.Pruned:
    torch.set_num_threads(1)
    data = aacp.Data.of(*pictures(), holdout=0.2, name="segmentation:pictures")
    recipe = aacp.Recipe(epochs=epochs, batch_size=16, lr=0.1, nesterov=True, weight_decay=5e-4)
    torch.manual_seed(0)
    model = UNet() if model is None else model
    aacp.fit(model, data, recipe, loss=loss, score=mean_iou, folder=Path(folder) / "base")

    # The distillation half of the loss compares the class probabilities of every pixel with the unpruned network's.
    plan = aacp.Plan(evaluations=evaluations, recipe=replace(recipe, lr=0.05, distillation=0.5))
    place = Path(folder) / "pruned"
    pruned = aacp.prune(model, data, {"macs": 0.5}, place, plan=plan, score=mean_iou, loss=loss)
    print(pruned)
    return pruned


if __name__ == "__main__":
    main(*sys.argv[1:2])
