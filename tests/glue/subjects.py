"""A tiny network and watermarked digits; the command line finds them by name, as it finds a user's own functions.

Every image carries a watermark in two of its pixels: the part of the data that it belongs to, and its position in
that part. A recorder of what a network reads can therefore tell where each image comes from.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import aacp

PARTS = ("train", "holdout", "test")
SIZES = {"train": 176, "holdout": 60, "test": 50}
POSITIONS = 1024.0  # a position is written as a fraction of this power of two, which single precision holds exactly


class Tiny(nn.Module):
    """Four convolutions with batch norms: a stem, and a residual stream around an inner layer; then a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.bn2 = nn.BatchNorm2d(16)
        self.conv3 = nn.Conv2d(16, 16, 3, padding=1)
        self.bn3 = nn.BatchNorm2d(16)
        self.conv4 = nn.Conv2d(16, 16, 3, padding=1)
        self.bn4 = nn.BatchNorm2d(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        x = x + self.bn4(self.conv4(torch.relu(self.bn3(self.conv3(x)))))
        return self.head(x.mean((2, 3)))


class Stopping(Tiny):
    """The same network, but with Ctrl-C pressed at its first pass after `is_due` says so."""

    is_due: Callable[[], bool] = staticmethod(lambda: False)

    def forward(self, x: Tensor) -> Tensor:
        if Stopping.is_due():
            raise KeyboardInterrupt
        return super().forward(x)


class WithBody(Stopping):
    """The same network behind a part of two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.ReLU(), nn.Conv2d(6, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.body(x))


class Watermarked(Dataset[tuple[Tensor, int]]):
    """Images that carry their part and position; `on_read`, if given, is called with both at every read."""

    def __init__(self, part: str, inputs: Tensor, labels: Tensor, on_read: Any = None) -> None:
        self.part = part
        self.inputs = inputs.clone()
        self.inputs[:, 0, 0, 0] = float(1 + PARTS.index(part))
        self.inputs[:, 0, 0, 1] = torch.arange(len(inputs)) / POSITIONS
        self.labels = labels
        self.on_read = on_read

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if index >= len(self):
            raise IndexError(index)
        if self.on_read is not None:
            self.on_read(self.part, index)
        return self.inputs[index], int(self.labels[index])


def watermarks(inputs: Tensor) -> set[tuple[str, int]]:
    """The part and position of every image of a batch that has a watermark."""
    found = set()
    for code, place in zip(inputs[:, 0, 0, 0].tolist(), inputs[:, 0, 0, 1].tolist(), strict=True):
        position = place * POSITIONS
        if code in (1.0, 2.0, 3.0) and position == int(position):
            part = PARTS[int(code) - 1]
            if 0 <= position < SIZES[part]:
                found.add((part, int(position)))
    return found


@functools.cache
def _digits() -> dict[str, tuple[Tensor, Tensor]]:
    """Inputs and labels of each part of the digits that come with the package."""
    whole = aacp.load_data("digits")
    parts = {}
    for part in PARTS:
        inputs, labels = next(iter(aacp.Batches.of(getattr(whole, part), batch_size=SIZES[part])))
        parts[part] = (inputs, labels)
    return parts


def data(on_read: Any = None) -> aacp.Data:
    """The watermarked digits in their three parts."""
    parts = {part: Watermarked(part, *_digits()[part], on_read) for part in PARTS}
    return aacp.Data(**parts, name="watermarked digits")


def other_data() -> aacp.Data:
    """The same under another name."""
    found = data()
    return aacp.Data(found.train, found.holdout, found.test, "other digits")


def pair() -> tuple[Dataset[Any], Dataset[Any]]:
    """Training and test data alone: a hold-out has to be drawn from the training data."""
    found = data()
    return found.train, found.test


def tiny() -> nn.Module:
    """An untrained network, for `aacp prune glue.subjects:tiny`."""
    return Tiny()


def stopping() -> nn.Module:
    """An untrained network that stops a run when a test says so."""
    return Stopping()


def stopping_too() -> nn.Module:
    """The same under another name."""
    return Stopping()


def with_body() -> nn.Module:
    """One with a part that can be pruned alone."""
    return WithBody()


judged_by: list[set[tuple[str, int]]] = []  # the images of every call of `metric`


def metric(network: nn.Module, batches: aacp.Batches) -> float:
    """A score function, for `--metric glue.subjects:metric`."""
    judged_by.append(set().union(*map(watermarks, batches.inputs())))
    return aacp.accuracy(network, batches)


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss function, for `--loss glue.subjects:loss`."""
    return nn.functional.cross_entropy(outputs, targets)


def inherited(
    model: nn.Module, graph: aacp.ChannelGraph, counts: Sequence[int], *, importance: str, seed: int = 0
) -> nn.Module:
    """The model cut to a structure with its weights kept; its batch norms see other images than in a run."""
    calibration = (torch.rand(4, 1, 8, 8), torch.zeros(4, dtype=torch.long))
    return aacp.Inheritance(model, graph, calibration, importance=importance, seed=seed).network(counts)


def inputs_alone() -> Tensor:
    """All images without their labels, as one tensor."""
    found = data()
    return torch.cat([found.train.inputs, found.holdout.inputs, found.test.inputs])
