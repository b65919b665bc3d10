"""LoaderBatches: training batches from the user's data set or loader, moved to the device one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from aacp.data.endless import bounded, without_worker_traceback
from aacp.data.examples import (
    are_on_host,
    batch_size_of,
    inputs_of,
    moved,
    narrowed_batch,
    targets_of,
    targets_of_others,
    tensors_in,
)
from aacp.data.memory import release_unused, worker_count
from aacp.data.pixels import PixelSource
from aacp.data.seeding import seed_loader
from aacp.errors import InvalidData
from aacp.train.mixing import UNMIXED
from aacp.train.seeding import generator

IGNORED = -100  # the label that torch's losses ignore
LABEL_TYPES = (torch.int64, torch.uint8)  # the types of labels that torch's cross-entropy takes


class LoaderBatches:
    """Training batches of a data set, which this class orders and splits, or of a loader, which makes its own batches.

    The order of a data set depends on seed and epoch. Images on disk come as bytes and are normalised on the device,
    and their random crops depend on seed, epoch and position only. A loader shuffles by itself: its generator, if it
    has one, and torch's global generator are seeded at the start of every epoch.

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
        self._classes: int | None = None  # the network's number of classes, if `expect_classes` was called
        self._is_finite: Tensor | None = None  # whether all inputs so far were finite; on the device, nothing waits
        self._rejects_ignored = False  # whether `reject_ignored` was called
        self._min_examples = 1  # batches with fewer examples are skipped, except the first
        self.steps = len(source) // batch_size if self._is_dataset else len(source)

    @property
    def _is_dataset(self) -> bool:
        return isinstance(self.source, Dataset)

    def identity(self) -> dict[str, Any]:
        """What distinguishes this data from other data: of a user's data only type and length are known."""
        if isinstance(self.source, PixelSource):
            return self.source.identity()
        return {"type": type(self.source).__name__, "length": len(self.source)}

    def expect_classes(self, classes: int) -> None:
        """Reject labels, as they come, for which a network with this number of classes has no output."""
        self._classes = classes

    def reject_ignored(self) -> None:
        """Reject the label that losses ignore, as it comes: mixed examples need a class each."""
        self._rejects_ignored = True

    def skip_batches_below(self, examples: int) -> None:
        """Skip batches with fewer examples, except the first batch of an epoch."""
        self._min_examples = examples

    def epoch(self, number: int) -> Iterator[tuple[Any, Any]]:
        """The batches of one epoch: this process's share of each."""
        loader = self._loader(number) if self._is_dataset else self._seeded(number)
        for position, batch in enumerate(bounded(without_worker_traceback(loader), self.steps)):
            share = batch if self._is_dataset else self._share(batch)
            # A short last batch is normal. A short first batch is a mistake, which training reports.
            if batch_size_of(share) >= self._min_examples or not position:
                if self._rejects_ignored:
                    require_no_ignored(targets_of(share))
                if self._classes is not None:
                    check_targets(targets_of(share), self._classes)
                here = moved(share, self.device, in_background=self._is_dataset and self.device.type == "cuda")
                yield self._prepared(inputs_of(here)), targets_of(here)

    def _prepared(self, inputs: Any) -> Any:
        """Inputs as the network takes them; NaN and infinity are noticed without waiting for the device."""
        if isinstance(self.source, PixelSource):
            return self.source.normalised(inputs)
        for tensor in tensors_in(inputs):
            if tensor.is_floating_point():
                found = tensor.detach().isfinite().all()
                self._is_finite = found if self._is_finite is None else self._is_finite & found
        return inputs

    @property
    def are_inputs_finite(self) -> bool:
        """Whether no input that was read holds NaN or infinity."""
        return self._is_finite is None or bool(self._is_finite)

    def _loader(self, epoch: int) -> DataLoader[Any]:
        """A loader whose workers draw from the epoch's seed; new in every epoch, because workers keep their state."""
        order = torch.randperm(len(self.source), generator=generator(self.seed, epoch))
        batches = order[: self.steps * self.batch_size].reshape(self.steps, self.batch_size)
        low, high = (k * self.batch_size // self.ranks for k in (self.rank, self.rank + 1))
        is_encoded = isinstance(self.source, PixelSource)
        if self.workers:
            release_unused()
        return DataLoader(
            self.source.as_bytes(self.seed, epoch) if is_encoded else self.source,
            batch_sampler=batches[:, low:high].tolist(),
            num_workers=self.workers,
            pin_memory=self._is_moved,
            generator=generator(self.seed, epoch, self.rank),
        )

    @property
    def workers(self) -> int:
        """Worker processes: for images that must be decoded, and for a GPU, which must not wait; those of a loader."""
        if not self._is_dataset:
            return int(getattr(self.source, "num_workers", 0))
        is_slow = isinstance(self.source, PixelSource) or self._is_moved
        return worker_count(len(self.source), self.ranks) if is_slow else 0

    @cached_property
    def _is_moved(self) -> bool:
        """Whether examples of a data set are moved from the host's memory to a GPU."""
        return self.device.type == "cuda" and (isinstance(self.source, PixelSource) or are_on_host(self.source))

    @property
    def has_one_shape(self) -> bool:
        """Whether all batches are known to have one shape."""
        return isinstance(self.source, PixelSource)

    def _seeded(self, epoch: int) -> Any:
        seed_loader(self.source, self.seed, epoch)  # equal in every process, or their shares would overlap
        return self.source

    def _share(self, batch: Any) -> Any:
        """The part of a batch that this process keeps; examples that cannot be divided evenly are dropped."""
        if self.ranks == 1:
            return batch
        count = batch_size_of(batch)
        _require_divisible(batch, count)
        part = count // self.ranks
        return narrowed_batch(batch, self.rank * part, part)


def check_targets(targets: Any, classes: int) -> None:
    """Reject a label without a class before it reaches a GPU, where it would end the process, and other types.

    Numbers with a fraction are accepted only as a probability for each class, of shape (n, classes, ...).
    """
    if not isinstance(targets, Tensor):
        return
    if not targets.is_floating_point():
        if targets.dtype not in LABEL_TYPES:
            raise InvalidData(
                f"The training data have labels of {targets.dtype}, which cross-entropy does not take. Give int64 "
                "labels: labels.long()."
            )
        check_labels(targets[targets != IGNORED], classes)
    elif targets.dim() < 2 or targets.size(1) != classes:
        first = f"{float(targets.flatten()[0]):g}" if targets.numel() else "none"
        raise InvalidData(
            f"The training data have labels of {targets.dtype} and shape {tuple(targets.shape)}, such as {first}, but "
            "cross-entropy needs classes. Give whole numbers, or your own loss (loss) for other targets."
        )


def _require_divisible(batch: Any, count: int) -> None:
    """Reject targets of which a process would get those of other examples than its own."""
    other = targets_of_others(batch)
    if other is not None:
        raise InvalidData(
            f"A batch of {count} examples has targets of shape {tuple(other.shape)}, which are not one for each "
            "example, so that processes cannot share it. Train in one process, or give such targets."
        )


def require_no_ignored(targets: Any) -> None:
    """Reject the label that losses ignore where examples are mixed."""
    if isinstance(targets, Tensor) and bool((targets == IGNORED).any()):
        raise InvalidData(
            f"The training data have the label {IGNORED}, which losses ignore, but the recipe mixes examples, and each "
            f"of these needs a class. {UNMIXED}"
        )


def check_labels(labels: Tensor, classes: int) -> None:
    """Reject labels for which the network has no output."""
    if not labels.numel():
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise InvalidData(
            f"There is a label {low if low < 0 else high} in the training data, but the network has {classes} "
            f"classes, 0 to {classes - 1}. Give labels of its classes, a network with more outputs, or a loss that "
            "ignores this label (--loss)."
        )
