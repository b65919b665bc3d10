"""Batches: data that is read once, kept in memory, and iterated over many times in the same order.

A batch is (inputs, targets) or inputs alone, as the loader gives it. Inputs are one tensor, a tuple of tensors, or a
dictionary by argument name, as for `trace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from aacp.data.images import Images
from aacp.errors import InvalidData
from aacp.torch_internals import pytree

MAX_BYTES = 16 << 30  # larger data is rejected: it is probably a whole training set, given by mistake
RESIDENT_SHARE = 0.25  # data stays on a device if it fits into this share of the free memory; activations get the rest


class Batches:
    """Data in batches for one device: kept there if it fits, otherwise copied there one batch at a time."""

    def __init__(self, batches: list[Any], device: torch.device | str = "cpu") -> None:
        if not batches or not sum(map(batch_size_of, batches)):
            raise InvalidData("The loader or data set is empty. Give at least one batch.")
        self.device = torch.device(device)
        self.is_resident = self.device.type == "cpu" or _bytes(batches) <= RESIDENT_SHARE * free_memory(self.device)
        self._batches = [moved(batch, self.device) for batch in batches] if self.is_resident else batches

    @classmethod
    def of(
        cls,
        source: Any,
        *,
        batch_size: int = 256,
        images: int | None = None,
        device: torch.device | str = "cpu",
    ) -> Batches:
        """Read data into batches.

        Args:
            source: a loader, a data set, tensors (inputs, targets), or inputs alone.
            batch_size: examples per batch. If the examples differ in shape, the batches of the loader are kept.
            images: use only the first `images` examples.
            device: where the network will read them.
        """
        for name, value in (("batch_size", batch_size), ("images", images)):
            if value is not None and value < 1:
                raise InvalidData(f"{name} is {value}, but at least one is needed. Give a positive number.")
        pieces = source._batches if isinstance(source, Batches) else _pieces(source, batch_size)
        return cls(_split(_taken(pieces, images), batch_size), device)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            yield batch if self.is_resident else moved(batch, self.device)

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def images(self) -> int:
        """The number of examples in all batches."""
        return sum(map(batch_size_of, self._batches))

    @property
    def bytes(self) -> int:
        """The memory that all batches take."""
        return _bytes(self._batches)

    def shuffled(self, seed: int) -> Batches:
        """The same examples in random order; if their shapes differ, whole batches are reordered."""
        generator = torch.Generator().manual_seed(seed)
        size = batch_size_of(self._batches[0])
        whole = _split(self._batches, self.images)
        if len(whole) > 1:
            return Batches([whole[i] for i in torch.randperm(len(whole), generator=generator)], self.device)
        order = torch.randperm(self.images, generator=generator)
        mixed = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[order.to(tensor.device)], whole[0])
        return Batches(_split([mixed], size), self.device)

    def parts(self, ends: Sequence[float]) -> list[Batches]:
        """The batches in consecutive parts that end near the given shares of them; the last part has the rest."""
        cuts = sorted({max(1, round(end * len(self))) for end in ends} | {len(self)})
        return [Batches(self._batches[start:end], self.device) for start, end in zip([0, *cuts], cuts, strict=False)]

    def inputs(self) -> Iterator[Any]:
        """The inputs of each batch."""
        return map(inputs_of, self)


def inputs_of(batch: Any) -> Any:
    """The inputs of a batch: the first of a pair, or the whole batch; several inputs are a tuple."""
    inputs = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else batch
    return tuple(inputs) if isinstance(inputs, list) else inputs  # torch's loaders turn tuples into lists


def targets_of(batch: Any) -> Any:
    """The targets of a batch, or None if it has none."""
    return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None


def call(model: nn.Module, inputs: Any) -> Any:
    """The outputs of the network for inputs: a tensor, a tuple of several, or a dictionary by argument name."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def batch_size_of(batch: Any) -> int:
    """The number of examples of a batch."""
    tensors = _tensors(inputs_of(batch))
    if not tensors or not tensors[0].dim():
        raise InvalidData(
            f"A batch is a {type(batch).__name__} without a tensor of inputs. "
            "Give batches of (inputs, targets), or of inputs alone."
        )
    return len(tensors[0])


def moved(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device."""
    # Copied synchronously: a tensor copied to the host in the background may be read before it has arrived.
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), batch)


def _pieces(source: Any, batch_size: int) -> Iterable[Any]:
    """The source as an iterable of batches."""
    if isinstance(source, Images):
        chunks = zip(torch.split(source.pixels, batch_size), torch.split(source.labels, batch_size), strict=True)
        return ((source.normalised(pixels), labels) for pixels, labels in chunks)
    if isinstance(source, torch.Tensor):
        return [source]
    if isinstance(source, tuple) and len(source) == 2 and all(_tensors(part) for part in source):
        return [source]
    if isinstance(source, Dataset) and hasattr(source, "__len__"):
        return DataLoader(source, batch_size=batch_size)
    if isinstance(source, Iterable):
        return source
    raise InvalidData(
        f"A {type(source).__name__} is not data. Give a loader, a data set, or tensors (inputs, targets)."
    )


def _taken(pieces: Iterable[Any], images: int | None) -> list[Any]:
    """The first `images` examples (all, if None), read once; data beyond MAX_BYTES is rejected."""
    taken: list[Any] = []
    left, size = images, 0
    for batch in pieces:
        count = batch_size_of(batch)
        if left is not None and count > left:
            batch = _narrowed(batch, 0, left, count)
        taken.append(batch)
        size += _bytes([batch])
        if size > MAX_BYTES:
            raise InvalidData(
                f"The data takes more than {MAX_BYTES >> 30} GiB. Give fewer images: "
                "Batches.of(loader, images=4096) reads the first 4,096."
            )
        if left is not None and (left := left - min(count, left)) == 0:
            break
    return taken


def _split(batches: list[Any], batch_size: int) -> list[Any]:
    """The same examples in batches of one size, of which the last may be smaller; unchanged if shapes differ."""
    if len({_signature(batch) for batch in batches}) != 1 or _signature(batches[0]) is None:
        return batches
    if [batch_size_of(batch) for batch in batches] == _sizes(sum(map(batch_size_of, batches)), batch_size):
        return batches
    leaves = [pytree.tree_flatten(batch) for batch in batches]
    whole = [torch.cat(parts) for parts in zip(*(leaf for leaf, _ in leaves), strict=True)]
    chunks = zip(*(torch.split(tensor, batch_size) for tensor in whole), strict=True)
    return [pytree.tree_unflatten(chunk, leaves[0][1]) for chunk in chunks]


def _sizes(examples: int, batch_size: int) -> list[int]:
    """The sizes of the batches that a number of examples is split into."""
    return [min(batch_size, examples - start) for start in range(0, examples, batch_size)]


def _signature(batch: Any) -> tuple[Any, ...] | None:
    """What two batches must have in common to be joined; None if a batch contains anything but tensors of examples."""
    leaves, spec = pytree.tree_flatten(batch)
    count = batch_size_of(batch)
    if not all(isinstance(leaf, torch.Tensor) and leaf.dim() and len(leaf) == count for leaf in leaves):
        return None
    return (str(spec), *((tuple(leaf.shape[1:]), leaf.dtype) for leaf in leaves))


def _narrowed(batch: Any, start: int, length: int, count: int) -> Any:
    """The `length` examples from position `start` of a batch of `count`."""

    def part(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[start : start + length] if tensor.dim() and len(tensor) == count else tensor

    return pytree.tree_map_only(torch.Tensor, part, batch)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _bytes(batches: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(batches))


def free_memory(device: torch.device | str = "cpu") -> int:
    """The free memory of a device in bytes; MAX_BYTES if it is not known."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []
    available = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    return available[0] if available else MAX_BYTES
