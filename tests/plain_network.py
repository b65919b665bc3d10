"""A small network of plain layers with two free groups, which every runtime can run."""

from __future__ import annotations

import torch
from torch import nn


def plain_network() -> nn.Module:
    """A classifier of images with one channel, with the same weights in every call."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 24, 3), nn.BatchNorm2d(24), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
    ).eval()  # fmt: skip
