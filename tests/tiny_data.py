"""Tiny data in place of CIFAR-10, for commands that are run as they are documented."""

from __future__ import annotations

import torch

import aacp

IMAGES = 48


def cifar10() -> aacp.Data:
    """Random colour images of 32 pixels with random labels, as Data."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(2 * IMAGES, 3, 32, 32, generator=generator)
    labels = torch.arange(2 * IMAGES) % 10
    return aacp.Data.of((pixels[:IMAGES], labels[:IMAGES]), (pixels[IMAGES:], labels[IMAGES:]), name="tiny")
