"""Batches to score a network on: kept on the device if they are small, and read in every pass otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from aacp.data.batches import Batches, moved
from aacp.data.images import Images
from aacp.torch_internals import pytree
from aacp.train.loader_batches import worker_count

BATCH = 500  # examples in a batch
MAX_KEPT = 2 << 30  # bytes of examples that are kept on the device


class Streamed(Batches):
    """Batches that a loader reads again in every pass."""

    def __init__(self, loader: DataLoader[Any], device: torch.device) -> None:
        self.loader = loader
        self.device = device
        self.is_resident = False

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield moved(batch, self.device)

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def images(self) -> int:
        return len(self.loader.dataset)  # type: ignore[arg-type]


def scoring_batches(source: Any, device: torch.device) -> Batches:
    """Held-out or test data as batches on a device."""
    if isinstance(source, Dataset) and not isinstance(source, Images) and _bytes(source) > MAX_KEPT:
        workers = worker_count() if device.type == "cuda" else 0
        return Streamed(DataLoader(source, BATCH, num_workers=workers, pin_memory=device.type == "cuda"), device)
    return Batches.of(source, batch_size=BATCH, device=device)


def _bytes(source: Any) -> int:
    """The memory that a data set would take, estimated from its first example."""
    leaves = pytree.tree_leaves(source[0]) if len(source) else []
    return len(source) * sum(leaf.nbytes for leaf in leaves if isinstance(leaf, torch.Tensor))
