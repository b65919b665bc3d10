"""A small network, its images and a score with many digits, for tests of estimates."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

import aacp
from aacp.data.examples import inputs_of, targets_of
from graph.micro_networks import conv

RANDOM = torch.Generator().manual_seed(1)
CALIBRATION = torch.randn(20, 3, 8, 8, generator=RANDOM) + 0.3
IMAGES, LABELS = torch.randn(60, 3, 8, 8, generator=RANDOM), torch.randint(0, 5, (60,), generator=RANDOM)
STRUCTURE, OTHER = [5, 3], [2, 6]


def network() -> nn.Sequential:
    torch.manual_seed(0)
    first = (conv(3, 8), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.5))
    second = (conv(8, 6), nn.BatchNorm2d(6), nn.ReLU6())
    model = nn.Sequential(*first, *second, nn.MaxPool2d(4), nn.Flatten(), nn.Linear(24, 5))
    for norm in (model[1], model[5]):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.2, 4)
        nn.init.normal_(norm.weight)
    nn.init.normal_(model[-1].weight)  # opinions that differ from image to image
    return model.eval()


@torch.no_grad()
def negative_loss(network: nn.Module, batches: aacp.Batches) -> float:
    losses = [F.cross_entropy(network(inputs_of(b)), targets_of(b), reduction="sum") for b in batches]
    return -float(sum(losses)) / batches.images
