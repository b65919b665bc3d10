"""PixelSource: a data set that can give its images as bytes, which take a quarter of the memory of inputs."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from torch import Tensor
from torch.utils.data import Dataset


@runtime_checkable
class PixelSource(Protocol):
    """Images whose bytes are decoded by worker processes and normalised on the device of the network."""

    @property
    def labels(self) -> Tensor:
        """The label of each image; zeros if there are none."""

    @property
    def is_labelled(self) -> bool:
        """Whether the labels mean anything; otherwise the images are read as inputs alone."""

    @property
    def bytes_per_image(self) -> int:
        """The bytes of one image as `as_bytes` gives it."""

    def as_bytes(self, *seeds: int) -> Dataset[tuple[Tensor, int]]:
        """The images as bytes; if this source augments, by random numbers that follow from seeds and position."""

    def normalised(self, pixels: Tensor) -> Tensor:
        """A batch of bytes as inputs of a network, on the same device."""

    def __len__(self) -> int:
        """The number of images."""

    def identity(self) -> dict[str, Any]:
        """What distinguishes these images from others, without decoding them."""
