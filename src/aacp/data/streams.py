"""Stream: batches that are read again in every pass, as they are before they reach the device of the network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from aacp.data.endless import bounded, length_of, require_countable, without_worker_traceback
from aacp.data.examples import (
    are_on_host,
    batch_size_of,
    bytes_of,
    copied,
    inputs_of,
    narrowed_batch,
    rebatched,
    targets_of_others,
    tensors_in,
)
from aacp.data.images import Images
from aacp.data.memory import BATCH_SIZE, MAX_PREPARED, fitting_batch_size, release_unused, worker_count
from aacp.data.pixels import PixelSource
from aacp.data.seeding import seeded_pass
from aacp.errors import InvalidData

Prepare = Callable[[Any], Any]  # from a batch on the device to the batch that the network reads


@dataclass(frozen=True, eq=False)
class Stream:
    """A source of batches.

    Args:
        source: a loader, a data set, tensors (inputs, targets), or inputs alone.
        batch_size: examples per batch; None chooses by the device and the size of an example.
        limit: the number of examples after which a pass ends; None reads all.
        device: where the network will read the batches.
    """

    source: Any
    batch_size: int | None
    limit: int | None
    device: torch.device
    # The batches and examples of a whole pass, once there was one.
    _counts: list[tuple[int, int]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        is_data = isinstance(self.source, (torch.Tensor, Iterable)) or length_of(self.source) is not None
        if not is_data or isinstance(self.source, (str, bytes)):
            raise InvalidData(
                f"A {type(self.source).__name__} is not data. Give a loader, a data set, or tensors (inputs, targets)."
            )
        require_countable(self.examples or 0)

    @property
    def is_repeatable(self) -> bool:
        """Whether the source can be read again; an iterator, such as a generator, is empty afterwards."""
        return not isinstance(self.source, Iterator)

    @property
    def prepare(self) -> Prepare | None:
        """What makes inputs of the bytes of a batch on the device; None if the batches are inputs already."""
        source = self.source
        if not isinstance(source, (Images, PixelSource)):
            return None
        if isinstance(source, PixelSource) and not source.is_labelled:
            return lambda batch: source.normalised(batch[0])
        return lambda batch: (source.normalised(batch[0]), batch[1])

    @property
    def examples(self) -> int | None:
        """The number of examples of a pass, if it is known without reading them."""
        whole = None
        if _are_tensors(self.source):
            whole = len(tensors_in(self.source)[0])
        elif self._is_dataset:
            whole = len(self.source)
        return whole if whole is None or self.limit is None else min(whole, self.limit)

    @property
    def expected_bytes(self) -> int | None:
        """The bytes of all batches, computed from the first example; None if it is not known how many there are."""
        if not self.examples or isinstance(self.source, IterableDataset):
            return None
        if isinstance(self.source, PixelSource):
            return self.examples * self.source.bytes_per_image
        if _are_tensors(self.source):
            return self.examples * bytes_of(narrowed_batch(self.source, 0, 1))
        first = next(without_worker_traceback(self.source[place] for place in (0,)))
        return self.examples * bytes_of(first)

    def bytes_like(self, batch: Any) -> int | None:
        """The bytes of all batches if all are like this one; None if the source has no length."""
        if length_of(self.source) is None:
            return None
        size = batch_size_of(batch)
        examples = len(self.source) if self._is_dataset else len(self.source) * size
        if self.limit is not None:
            examples = min(examples, self.limit)
        return examples * bytes_of(batch) // max(1, size)

    def of_size(self, batch_size: int, limit: int | None = None) -> Stream:
        """The same examples in batches of another size, or only the first `limit` of them."""
        limits = [number for number in (self.limit, limit) if number is not None]
        return replace(self, batch_size=batch_size, limit=min(limits) if limits else None)

    def size_for(self, batch: Any) -> int:
        """The number of examples in a batch, given one batch of the source."""
        if self.batch_size is not None:
            return self.batch_size
        size = bytes_of(inputs_of(batch)) // max(1, batch_size_of(batch))
        return fitting_batch_size(self._most, size if self.prepare is None else 4 * size, self.device)

    @property
    def _most(self) -> int:
        """The number of examples that are read at once."""
        if self.batch_size is not None:
            return self.batch_size
        most = BATCH_SIZE.get(self.device.type, BATCH_SIZE["cpu"])
        is_encoded = isinstance(self.source, PixelSource)
        return fitting_batch_size(most, 4 * self.source.bytes_per_image, self.device) if is_encoded else most

    def count_examples(self) -> int:
        """The number of examples; reads all of them if it is not known otherwise."""
        return self.examples if self.examples is not None else self._counted()[1]

    def count_batches(self) -> int:
        """The number of batches; reads all of them if it is not known otherwise."""
        if self.examples is None or self.batch_size is None:
            return self._counted()[0]
        return -(-self.examples // self.batch_size)

    def _counted(self) -> tuple[int, int]:
        if not self._counts:
            for _ in self:
                pass
        return self._counts[0]

    def __iter__(self) -> Iterator[Any]:
        """One pass, with as many examples in each batch as requested."""
        batches = 0
        examples = 0
        for batch in self._resized():
            batches += 1
            examples += batch_size_of(batch)
            yield batch
        if not self._counts:
            self._counts.append((batches, examples))

    def _resized(self) -> Iterator[Any]:
        pieces = self.read()
        first = next(pieces)
        yield from rebatched(chain([first], pieces), self.size_for(first))

    def read(self) -> Iterator[Any]:
        """One pass in the batches of the source: a loader makes its own."""
        is_empty = True
        for batch in limited(self._pieces(), self.limit):
            is_empty = is_empty and not batch_size_of(batch)
            yield batch
        if is_empty:
            raise InvalidData("The data has no examples. Give at least one batch.")

    @property
    def _is_dataset(self) -> bool:
        return isinstance(self.source, Dataset) and length_of(self.source) is not None

    def _pieces(self) -> Iterator[Any]:
        source = self.source
        if isinstance(source, Images):
            columns = (torch.split(tensor, self._most) for tensor in (source.pixels, source.labels))
            yield from zip(*columns, strict=True)
        elif _are_tensors(source):
            yield source
        else:
            batches = without_worker_traceback(seeded_pass(self._loader() if self._is_dataset else source))
            if not self._is_dataset:
                batches = bounded(batches, length_of(source), self.limit or 0)
                batches = batches if _gives_new_tensors(source) else map(copied, batches)
            yield from batches

    def _loader(self) -> DataLoader[Any]:
        """A loader of a data set, with worker processes where the images must be decoded or are too many to keep."""
        size = self._most if self.limit is None else min(self._most, self.limit)
        examples = self.examples or 0
        source = self.source
        is_encoded = isinstance(source, PixelSource)
        is_large = self.device.type == "cuda" and (self.expected_bytes or 0) > MAX_PREPARED
        is_slow = is_encoded or (is_large and are_on_host(source))
        if is_slow:
            release_unused()
        return DataLoader(
            source.as_bytes() if is_encoded else source,
            size,
            num_workers=worker_count(examples) if is_slow else 0,
            pin_memory=self.device.type == "cuda" and is_slow,
            generator=torch.Generator().manual_seed(0),
        )


def limited(batches: Iterable[Any], examples: int | None) -> Iterator[Any]:
    """The first `examples` of batches, all of them if None; no batch is read in vain.

    Where the targets cannot be cut with the inputs, the last batch stays whole.
    """
    left = examples
    for batch in batches:
        if left is None:
            yield batch
            continue
        count = batch_size_of(batch)
        is_cut = count > left and targets_of_others(batch) is None
        yield narrowed_batch(batch, 0, left) if is_cut else batch
        left -= min(count, left)
        if not left:
            return


def _are_tensors(source: Any) -> bool:
    """Whether the source is one batch of everything: inputs, or (inputs, targets)."""
    if isinstance(source, tuple):
        return len(source) == 2 and all(tensors_in(part) for part in source)
    return isinstance(source, torch.Tensor)


def _gives_new_tensors(loader: Any) -> bool:
    """Whether a loader is known not to write a batch into the memory of an earlier one, as fast loaders of users do."""
    return isinstance(loader, (DataLoader, Sequence))
