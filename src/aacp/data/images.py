"""Images: labelled images in memory as bytes, with their normalisation and augmentation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.utils.data import Dataset

from aacp.errors import InvalidData
from aacp.user.values import counted


@dataclass(frozen=True, eq=False)
class Images(Dataset[tuple[torch.Tensor, int]]):
    """A data set of labelled images in memory. Its items are normalised; only training augments them."""

    pixels: torch.Tensor  # uint8 of shape (n, channels, height, width)
    labels: torch.Tensor  # int64 of shape (n,)
    mean: tuple[float, ...]  # subtracted from each channel, of pixels in 0..1
    std: tuple[float, ...]  # each channel is divided by it
    padding: int = 0  # training crops at random after padding each side by this many pixels
    flip: bool = False  # whether training flips images horizontally at random

    def __post_init__(self) -> None:
        shape = tuple(self.pixels.shape)
        if self.pixels.dtype != torch.uint8 or len(shape) != 4:
            raise InvalidData(
                f"Images are bytes of shape (n, channels, height, width), but got {self.pixels.dtype} of shape "
                f"{shape}. Give a uint8 tensor."
            )
        if self.labels.dtype != torch.int64 or tuple(self.labels.shape) != shape[:1]:
            raise InvalidData(
                f"The data has {counted(shape[0], 'image')}, but the labels are {self.labels.dtype} of shape "
                f"{tuple(self.labels.shape)}. Give one int64 label per image."
            )
        if len(self.mean) != shape[1] or len(self.std) != shape[1]:
            raise InvalidData(
                f"The images have {counted(shape[1], 'channel')}, but mean and std have {len(self.mean)} and "
                f"{len(self.std)} numbers. Give one per channel."
            )
        if not all(map(math.isfinite, self.mean)) or not all(0 < value < math.inf for value in self.std):
            raise InvalidData(
                f"The mean {self.mean} or std {self.std} makes inputs that are not finite. Give finite numbers, and a "
                "positive std."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.normalised(self.pixels[index]), int(self.labels[index])

    def normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """Bytes as inputs of a network, on the same device: (pixel / 255 - mean) / std."""
        mean = torch.tensor(self.mean, device=pixels.device).reshape(-1, 1, 1)
        std = torch.tensor(self.std, device=pixels.device).reshape(-1, 1, 1)
        return pixels.float().div_(255).sub_(mean).div_(std)

    def subset(self, index: torch.Tensor | Sequence[int]) -> Images:
        """The images at the given positions, in that order."""
        positions = torch.as_tensor(index)
        return replace(self, pixels=self.pixels[positions], labels=self.labels[positions])

    def unaugmented(self) -> Images:
        """The same images, which nothing augments."""
        return replace(self, padding=0, flip=False)

    def joined(self, others: Images) -> Images:
        """These images followed by others, all normalised and augmented like these."""
        pixels = torch.cat([self.pixels, others.pixels])
        return replace(self, pixels=pixels, labels=torch.cat([self.labels, others.labels]))
