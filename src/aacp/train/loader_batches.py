"""LoaderBatches: training batches from the user's data set or loader, moved to the device one by one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from aacp.data.batches import batch_size_of, inputs_of, moved, targets_of
from aacp.data.devices import usable_cores
from aacp.errors import AACPError, InvalidData
from aacp.torch_internals import pytree
from aacp.train.seeding import generator, seed_loader

IGNORED = -100  # the label that torch's losses ignore
MAX_WORKERS = 8  # processes that load data for one GPU


class LoaderBatches:
    """Training batches of a data set, which this class orders and splits, or of a loader, which makes its own batches.

    The order of a data set depends on seed and epoch. A loader shuffles by itself: its generator, if it has one, and
    torch's global generator are seeded at the start of every epoch.

    Args:
        source: the data set or loader.
        batch_size: examples in a step, of all processes together; ignored for a loader.
        seed: decides the order.
        device: where the batches are moved to.
        rank: the number of this process.
        ranks: the number of processes.
    """

    def __init__(
        self, source: Any, batch_size: int, seed: int, device: torch.device, rank: int = 0, ranks: int = 1
    ) -> None:
        self.source = source
        self.batch_size = batch_size
        self.seed = seed
        self.device = device
        self.rank = rank
        self.ranks = ranks
        self._classes: float = math.inf  # the network's number of classes, if `expect_classes` was called
        self._min_examples = 1  # batches with fewer examples are skipped, except the first
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
        """What distinguishes this data from other data: of a user's data only type and length are known."""
        return {"type": type(self.source).__name__, "length": len(self.source)}

    def expect_classes(self, classes: int) -> None:
        """Reject labels, as they come, for which a network with this number of classes has no output."""
        self._classes = classes

    def skip_batches_below(self, examples: int) -> None:
        """Skip batches with fewer examples, except the first batch of an epoch."""
        self._min_examples = examples

    def epoch(self, number: int) -> Iterator[tuple[Any, Any]]:
        """The batches of one epoch: this process's share of each."""
        loader = self._loader(number) if self._is_dataset else self._seeded(number)
        for position, batch in enumerate(_without_worker_traceback(loader)):
            share = batch if self._is_dataset else self._share(batch)
            # A short last batch is normal. A short first batch is a mistake, which training reports.
            if batch_size_of(share) >= self._min_examples or not position:
                self._check(targets_of(share))
                here = moved(share, self.device)
                yield inputs_of(here), targets_of(here)

    def _loader(self, epoch: int) -> DataLoader[Any]:
        """A loader whose workers draw from the epoch's seed; new in every epoch, because workers keep their state."""
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
        """Worker processes for a GPU, which must not wait for data; none for a CPU, which has no cores to spare."""
        return worker_count(self.ranks) if self.device.type == "cuda" else 0

    def _seeded(self, epoch: int) -> Any:
        seed_loader(self.source, self.seed, epoch)  # equal in every process, or their shares would overlap
        return self.source

    def _share(self, batch: Any) -> Any:
        """The part of a batch that this process keeps; examples that cannot be divided evenly are dropped."""
        if self.ranks == 1:
            return batch
        count = batch_size_of(batch)
        part = count // self.ranks

        def mine(tensor: Tensor) -> Tensor:
            return tensor[self.rank * part :][:part] if tensor.dim() and len(tensor) == count else tensor

        return pytree.tree_map_only(Tensor, mine, batch)

    def _check(self, targets: Any) -> None:
        if math.isfinite(self._classes):
            check_targets(targets, self._classes)


def _without_worker_traceback(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a loader. torch puts a worker's traceback into the message of its error: remove it from ours."""
    try:
        yield from loader
    except AACPError as error:
        *before, last = str(error).strip().splitlines()
        if not before:
            raise
        raise type(error)(last.partition(": ")[2]) from None


def worker_count(ranks: int = 1) -> int:
    """How many processes load data for each of `ranks` training processes."""
    return min(MAX_WORKERS, max(1, usable_cores() // ranks))


def check_targets(targets: Any, classes: float) -> None:
    """Reject a label without a class before it reaches a GPU, where it would end the process."""
    if isinstance(targets, Tensor) and not targets.is_floating_point():
        check_labels(targets[targets != IGNORED], classes)


def check_labels(labels: Tensor, classes: float) -> None:
    """Reject labels for which the network has no output."""
    if not labels.numel():
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise InvalidData(
            f"There is a label {low if low < 0 else high} in the training data, but the network has {classes} "
            f"classes, 0 to {classes - 1}. Give labels of its classes, or a network with more outputs."
        )
