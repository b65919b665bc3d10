"""Tiny data in place of CIFAR-10, for documented commands that are run with a small network."""

from __future__ import annotations

import torch
from torch import Tensor

IMAGES = 48
Part = tuple[Tensor, Tensor]


def digits() -> tuple[Part, Part]:
    """Random images as digits_resnet takes them, with labels, to train on and to test on."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(2 * IMAGES, 1, 8, 8, generator=generator)
    labels = torch.arange(2 * IMAGES) % 10
    return (pixels[:IMAGES], labels[:IMAGES]), (pixels[IMAGES:], labels[IMAGES:])
