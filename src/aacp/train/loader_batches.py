"""Loaded: training batches from a data set or loader of the user's, brought to the device as they come."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from aacp.data.batches import batch_size_of, inputs_of, moved, targets_of
from aacp.errors import AACPError, InvalidData
from aacp.torch_internals import pytree
from aacp.train.seeding import generator, seed_loader

IGNORED = -100  # torch's mark for what a loss should pass over


class LoaderBatches:
    """Training batches of a data set, split and ordered by us; or of a loader, as it makes them.

    A data set's order follows from seed and epoch. A loader is shuffled by its own means: its generator, if it has one,
    and torch's global one are seeded at the start of every epoch.
    """

    def __init__(
        self, source: Any, batch_size: int, seed: int, device: torch.device, rank: int = 0, ranks: int = 1
    ) -> None:
        self.source, self.batch_size, self.seed, self.device = source, batch_size, seed, device
        self.rank, self.ranks = rank, ranks
        self.classes: float = math.inf  # how many the network tells apart, once that is known
        self.least = 1  # the smallest share of a batch that can be trained on
        self.steps = len(source) // batch_size if self._is_dataset else len(source)
        if not self.steps:
            raise InvalidData(
                f"The data has {len(source)} {'examples' if self._is_dataset else 'batches'}, and a step needs a batch "
                f"of {batch_size}. Give more data or a smaller batch size."
            )

    @property
    def _is_dataset(self) -> bool:
        return isinstance(self.source, Dataset)

    def identity(self) -> dict[str, Any]:
        """What tells this data from other data, as far as it can be told."""
        return {"type": type(self.source).__name__, "length": len(self.source)}

    def epoch(self, number: int) -> Iterator[tuple[Any, Any]]:
        """The batches of one epoch: this process's share of each."""
        loader = self._loader(number) if self._is_dataset else self._seeded(number)
        for position, batch in enumerate(_plainly(loader)):
            share = batch if self._is_dataset else self._share(batch)
            # A last batch of one has no statistics; a first one is a mistake, to be told rather than passed over.
            if batch_size_of(share) >= self.least or not position:
                self._check(targets_of(share))
                here = moved(share, self.device)
                yield inputs_of(here), targets_of(here)

    def _loader(self, epoch: int) -> DataLoader[Any]:
        """A loader whose workers draw from the epoch's seed; new for each epoch, as living workers keep their state."""
        order = torch.randperm(len(self.source), generator=generator(self.seed, epoch))
        batches = order[: self.steps * self.batch_size].reshape(self.steps, self.batch_size)
        low, high = (k * self.batch_size // self.ranks for k in (self.rank, self.rank + 1))
        return DataLoader(
            self.source,
            batch_sampler=batches[:, low:high].tolist(),
            num_workers=self._workers(),
            pin_memory=self.device.type == "cuda",
            generator=generator(self.seed, epoch, self.rank),
        )

    def _workers(self) -> int:
        """Beside a GPU, which must not wait; a CPU has nothing to spare."""
        return worker_count(self.ranks) if self.device.type == "cuda" else 0

    def _seeded(self, epoch: int) -> Any:
        seed_loader(self.source, self.seed, epoch)  # the same in every process, or their shares would overlap
        return self.source

    def _share(self, batch: Any) -> Any:
        """Every process reads the same batch and keeps its part; examples that cannot be dealt out evenly are left."""
        if self.ranks == 1:
            return batch
        count = batch_size_of(batch)
        part = count // self.ranks

        def mine(tensor: Tensor) -> Tensor:
            return tensor[self.rank * part :][:part] if tensor.dim() and len(tensor) == count else tensor

        return pytree.tree_map_only(Tensor, mine, batch)

    def _check(self, targets: Any) -> None:
        if math.isfinite(self.classes):
            check_targets(targets, self.classes)


def _plainly(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a loader; an error of ours from a worker comes without the worker's traceback."""
    try:
        yield from loader
    except AACPError as error:
        *before, last = str(error).strip().splitlines()
        if not before:
            raise
        raise type(error)(last.partition(": ")[2]) from None


def worker_count(ranks: int = 1) -> int:
    return min(8, max(1, len(os.sched_getaffinity(0)) // ranks))


def check_targets(targets: Any, classes: float) -> None:
    """A label without a class would end a GPU's process, so it is looked for before it gets there."""
    if isinstance(targets, Tensor) and not targets.is_floating_point():
        check_labels(targets[targets != IGNORED], classes)


def check_labels(labels: Tensor, classes: float) -> None:
    """Refuse labels for which the network has no output."""
    if not labels.numel():
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise InvalidData(
            f"There is a label {low if low < 0 else high} in the training data, but the network tells {classes} "
            f"classes apart, 0 to {classes - 1}. Give labels of its classes, or a network with more outputs."
        )
