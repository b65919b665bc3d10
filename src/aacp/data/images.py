"""Images: a labelled set of pictures held in memory as bytes, and how they are normalised and varied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.utils.data import Dataset

from aacp.errors import InvalidData


@dataclass(frozen=True, eq=False)
class Images(Dataset[tuple[torch.Tensor, int]]):
    """Pictures (n, channels, height, width) of bytes with a label each; as a data set, normalised and not varied.

    Training may vary them: crops after padding by so many pixels on each side, and horizontal flips.
    """

    pixels: torch.Tensor
    labels: torch.Tensor
    mean: tuple[float, ...]
    std: tuple[float, ...]
    padding: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        shape = tuple(self.pixels.shape)
        if self.pixels.dtype != torch.uint8 or len(shape) != 4:
            raise InvalidData(
                f"Pictures are bytes of shape (n, channels, height, width), but got {self.pixels.dtype} of shape "
                f"{shape}. Give a uint8 tensor."
            )
        if self.labels.dtype != torch.int64 or tuple(self.labels.shape) != shape[:1]:
            raise InvalidData(
                f"There are {shape[0]} pictures, but the labels are {self.labels.dtype} of shape "
                f"{tuple(self.labels.shape)}. Give one int64 label per picture."
            )
        if len(self.mean) != shape[1] or len(self.std) != shape[1]:
            raise InvalidData(
                f"The pictures have {shape[1]} channels, but mean and std have {len(self.mean)} and {len(self.std)} "
                "numbers. Give one per channel."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.normalised(self.pixels[index]), int(self.labels[index])

    def normalised(self, pixels: torch.Tensor) -> torch.Tensor:
        """Bytes as the numbers a network reads, wherever they are: (pixel / 255 - mean) / std."""
        mean = torch.tensor(self.mean, device=pixels.device).reshape(-1, 1, 1)
        std = torch.tensor(self.std, device=pixels.device).reshape(-1, 1, 1)
        return pixels.float().div_(255).sub_(mean).div_(std)

    def subset(self, index: torch.Tensor | Sequence[int]) -> Images:
        """Those with the given positions, in that order."""
        positions = torch.as_tensor(index)
        return replace(self, pixels=self.pixels[positions], labels=self.labels[positions])

    def joined(self, others: Images) -> Images:
        """These and others after them, normalised and varied as these are."""
        both = torch.cat([self.pixels, others.pixels]), torch.cat([self.labels, others.labels])
        return replace(self, pixels=both[0], labels=both[1])
