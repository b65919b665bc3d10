"""Cost models, in numpy, of the CIFAR networks that the paper prunes: widths, multiply-accumulates, parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aacp.cost.analytic import Cost

Counts = NDArray[np.int64]
_Total = Callable[[Counts, Counts], Counts]  # from the weights of each layer and the counts to one number per row


@dataclass(frozen=True, eq=False)
class ConvolutionNetwork:
    """3x3 convolutions between groups of channels: layer k reads `sources[k]` (-1: the image), writes `targets[k]`."""

    name: str
    widths: tuple[int, ...]
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    areas: tuple[int, ...]  # output pixels of each layer
    head: int  # the group the classifier reads

    @property
    def uses(self) -> NDArray[np.int64]:
        """How many layers read or write each group."""
        ends = [group for group in (*self.sources, *self.targets) if group >= 0]
        return np.bincount(ends, minlength=len(self.widths))

    def macs(self) -> Cost:
        """Multiply-accumulates of all convolutions and the ten-class classifier."""
        areas = np.array(self.areas)
        return self._cost("macs", "MACs", lambda weights, counts: weights @ areas + 10 * counts[:, self.head])

    def params(self) -> Cost:
        """Weights of all convolutions, two numbers per normalised channel, and the classifier."""
        targets = np.array(self.targets)
        return self._cost(
            "params",
            "parameters",
            lambda weights, counts: (
                weights.sum(axis=1) + 2 * counts[:, targets].sum(axis=1) + 10 * counts[:, self.head]
            ),
        )

    def _cost(self, name: str, unit: str, total: _Total) -> Cost:
        sources, targets = np.array(self.sources), np.array(self.targets)

        def rows(counts: Counts) -> Counts:
            with_image = np.concatenate(
                [counts, np.full((len(counts), 1), 3)], axis=1
            )  # source -1 is the image with three channels
            return total(9 * with_image[:, sources] * counts[:, targets], counts)

        return Cost(name, unit, int(rows(np.array([self.widths]))[0]), rows)


def vgg16() -> ConvolutionNetwork:
    """VGG16 for 32x32 images: a chain of 13 groups."""
    widths = (64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    sizes = (32, 32, 16, 16, 8, 8, 8, 4, 4, 4, 2, 2, 2)
    groups = tuple(range(13))
    return ConvolutionNetwork("VGG16", widths, (-1, *groups[:-1]), groups, tuple(size**2 for size in sizes), 12)


def resnet(depth: int) -> ConvolutionNetwork:
    """A CIFAR ResNet of `depth` = 6n + 2: one group inside each block, one along each of the three stages."""
    blocks = (depth - 2) // 6
    stages = [3 * blocks + stage for stage in range(3)]
    layers = [(-1, stages[0], 32**2)]
    for block in range(3 * blocks):
        stage = block // blocks
        before = stages[(block - 1) // blocks] if block else stages[0]
        area = (32 >> stage) ** 2
        layers += [(before, block, area), (block, stages[stage], area)]
    sources, targets, areas = zip(*layers, strict=True)
    widths = (*(16 << (block // blocks) for block in range(3 * blocks)), 16, 32, 64)
    return ConvolutionNetwork(f"ResNet{depth}", widths, sources, targets, areas, stages[2])
