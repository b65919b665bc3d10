"""DeviceBatches: images kept on the device as bytes, and cropped and flipped there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from aacp.data.images import Images
from aacp.train.loader_batches import check_labels
from aacp.train.seeding import digest, generator

DIGESTED = 1000  # images that identify a data set: reading all of ImageNet would take minutes


class DeviceBatches:
    """Training batches of images in memory. Order, crops and flips of an epoch depend only on seed and epoch.

    Every process draws the whole batch and takes its share, so a run sees the same images with any number of processes.
    All batches have one size: the few images left over at the end of an epoch are different ones in every epoch.

    Args:
        images: the data.
        batch_size: examples in a step, of all processes together.
        seed: decides order, crops and flips.
        device: where the images are kept.
        rank: the number of this process.
        ranks: the number of processes.
    """

    def __init__(
        self, images: Images, batch_size: int, seed: int, device: torch.device, rank: int = 0, ranks: int = 1
    ) -> None:
        self.images = images
        self.batch_size = batch_size
        self.seed = seed
        self.share = slice(rank * batch_size // ranks, (rank + 1) * batch_size // ranks)
        self.steps = len(images) // batch_size
        # Channels last: a crop then copies contiguous bytes, and the batch has the layout of fast convolutions.
        padded = F.pad(images.pixels.to(device), (images.padding,) * 4)
        self._pixels = padded.permute(0, 2, 3, 1).contiguous()
        self._labels = images.labels.to(device)
        self._scale = (1 / (255 * torch.tensor(images.std))).to(device)
        self._shift = (-torch.tensor(images.mean) / torch.tensor(images.std)).to(device)
        self._rows = torch.arange(images.pixels.shape[2], device=device)
        self._columns = torch.arange(images.pixels.shape[3], device=device)

    has_one_shape = True  # all batches have one shape
    are_inputs_finite = True  # bytes cannot hold NaN or infinity

    def identity(self) -> dict[str, Any]:
        """What distinguishes this data from other data."""
        sample = self.images.pixels[:: max(1, len(self.images) // DIGESTED)]
        return {
            "shape": list(self.images.pixels.shape),
            "padding": self.images.padding,
            "flip": self.images.flip,
            "mean": list(self.images.mean),
            "std": list(self.images.std),
            "digest": digest([self.images.labels, sample]),
        }

    def expect_classes(self, classes: int) -> None:
        """Reject labels for which a network with this number of classes has no output."""
        check_labels(self.images.labels, classes)

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The batches of one epoch: this process's share of each."""
        plan = self.plan(number).to(self._labels.device)
        for step in range(self.steps):
            yield self.batch(plan[step * self.batch_size :][: self.batch_size][self.share])

    def plan(self, epoch: int) -> Tensor:
        """One row for each image in the order of an epoch: index, row and column of the crop, flipped or not."""
        random = generator(self.seed, epoch)
        count = len(self.images)
        order = torch.randperm(count, generator=random)
        corners = torch.randint(2 * self.images.padding + 1, (count, 2), generator=random)
        flips = torch.randint(2, (count, 1), generator=random) * int(self.images.flip)
        return torch.cat([order[:, None], corners, flips], dim=1)

    def batch(self, plan: Tensor) -> tuple[Tensor, Tensor]:
        """The normalised images for some rows of a plan, in channels-last layout, and their labels."""
        position, top, left, flipped = plan.unbind(1)
        rows = top[:, None] + self._rows
        last = len(self._columns) - 1
        columns = left[:, None] + torch.where(flipped[:, None] > 0, last - self._columns, self._columns)
        pixels = self._pixels[position[:, None, None], rows[:, :, None], columns[:, None, :]]
        inputs = torch.addcmul(self._shift, pixels.float(), self._scale).permute(0, 3, 1, 2)
        return inputs, self._labels[position]
