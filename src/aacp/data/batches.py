"""Batches: data read once, kept, and gone through again and again in the same order.

A batch is what the user's loader gives: (inputs, targets), or inputs alone. Inputs are one tensor, a tuple of them, or
a dictionary by argument name, as for `trace`.
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

MOST_BYTES = 16 << 30  # more than this is a whole training set, given by mistake
RESIDENT_SHARE = 0.25  # of a device's free memory: the rest is for activations


class Batches:
    """Data in batches on one device: all of it there if it fits, otherwise brought there a batch at a time."""

    def __init__(self, batches: list[Any], device: torch.device | str = "cpu") -> None:
        if not batches or not sum(map(batch_size_of, batches)):
            raise InvalidData("There is no data: the loader or data set is empty. Give at least one batch.")
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
        """Batches of a loader, a data set, tensors (inputs, targets), or inputs alone; the first `images` if given.

        Data of one shape is split anew into batches of `batch_size`; other batches stay as the loader made them.
        """
        for name, value in (("batch_size", batch_size), ("images", images)):
            if value is not None and value < 1:
                raise InvalidData(f"{name} is {value}, but data needs at least one. Give a positive number.")
        pieces = source._batches if isinstance(source, Batches) else _pieces(source, batch_size)
        return cls(_split(_taken(pieces, images), batch_size), device)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            yield batch if self.is_resident else moved(batch, self.device)

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def images(self) -> int:
        """How many examples there are, over all batches."""
        return sum(map(batch_size_of, self._batches))

    @property
    def bytes(self) -> int:
        """How much memory they take."""
        return _bytes(self._batches)

    def shuffled(self, seed: int) -> Batches:
        """The same examples in random order; batches of several shapes change places as a whole."""
        generator = torch.Generator().manual_seed(seed)
        size = batch_size_of(self._batches[0])
        whole = _split(self._batches, self.images)
        if len(whole) > 1:
            return Batches([whole[i] for i in torch.randperm(len(whole), generator=generator)], self.device)
        order = torch.randperm(self.images, generator=generator)
        mixed = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[order.to(tensor.device)], whole[0])
        return Batches(_split([mixed], size), self.device)

    def parts(self, ends: Sequence[float]) -> list[Batches]:
        """The batches in stretches that end as close as can be after these shares of them, and at the last."""
        cuts = sorted({max(1, round(end * len(self))) for end in ends} | {len(self)})
        return [Batches(self._batches[start:end], self.device) for start, end in zip([0, *cuts], cuts, strict=False)]

    def inputs(self) -> Iterator[Any]:
        """What the network reads of each batch."""
        return map(inputs_of, self)


def inputs_of(batch: Any) -> Any:
    """What the network reads of a batch: the first of a pair, or all of it; several inputs are a tuple."""
    inputs = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else batch
    return tuple(inputs) if isinstance(inputs, list) else inputs  # torch's loaders make lists of tuples


def targets_of(batch: Any) -> Any:
    """What the network should say of a batch, None if the batch does not tell."""
    return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None


def call(model: nn.Module, inputs: Any) -> Any:
    """The network on its inputs: one, a tuple of several, or a dictionary by argument name."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def batch_size_of(batch: Any) -> int:
    """The number of examples of a batch."""
    tensors = _tensors(inputs_of(batch))
    if not tensors or not tensors[0].dim():
        raise InvalidData(
            f"A batch holds {type(batch).__name__}, in which no tensor of inputs was found. "
            "Give batches of (inputs, targets), or of inputs alone."
        )
    return len(tensors[0])


def moved(batch: Any, device: torch.device) -> Any:
    """A batch with its tensors on a device."""
    # Not in the background: what is copied to the host that way may be read before it has arrived.
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), batch)


def _pieces(source: Any, batch_size: int) -> Iterable[Any]:
    """The source as batches, whatever it is."""
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
    raise InvalidData(f"{type(source).__name__} is no data. Give a loader, a data set, or tensors (inputs, targets).")


def _taken(pieces: Iterable[Any], images: int | None) -> list[Any]:
    """The batches, read once; no more of them than asked for, and no more than a memory holds."""
    taken: list[Any] = []
    left, size = images, 0
    for batch in pieces:
        count = batch_size_of(batch)
        if left is not None and count > left:
            batch = _narrowed(batch, 0, left, count)
        taken.append(batch)
        size += _bytes([batch])
        if size > MOST_BYTES:
            raise InvalidData(
                f"The data takes more than {MOST_BYTES >> 30} GiB. Give fewer images: "
                "Batches.of(loader, images=4096) takes the first 4,096."
            )
        if left is not None and (left := left - min(count, left)) == 0:
            break
    return taken


def _split(batches: list[Any], batch_size: int) -> list[Any]:
    """The same examples in batches of one size, the last one smaller; unless their shapes forbid it."""
    if len({_signature(batch) for batch in batches}) != 1 or _signature(batches[0]) is None:
        return batches
    if [batch_size_of(batch) for batch in batches] == _sizes(sum(map(batch_size_of, batches)), batch_size):
        return batches
    leaves = [pytree.tree_flatten(batch) for batch in batches]
    whole = [torch.cat(parts) for parts in zip(*(leaf for leaf, _ in leaves), strict=True)]
    chunks = zip(*(torch.split(tensor, batch_size) for tensor in whole), strict=True)
    return [pytree.tree_unflatten(chunk, leaves[0][1]) for chunk in chunks]


def _sizes(examples: int, batch_size: int) -> list[int]:
    """How so many examples are split."""
    return [min(batch_size, examples - start) for start in range(0, examples, batch_size)]


def _signature(batch: Any) -> tuple[Any, ...] | None:
    """What two batches must share to be joined; None if a batch holds anything but tensors of its examples."""
    leaves, spec = pytree.tree_flatten(batch)
    count = batch_size_of(batch)
    if not all(isinstance(leaf, torch.Tensor) and leaf.dim() and len(leaf) == count for leaf in leaves):
        return None
    return (str(spec), *((tuple(leaf.shape[1:]), leaf.dtype) for leaf in leaves))


def _narrowed(batch: Any, start: int, length: int, count: int) -> Any:
    """Some examples of a batch of `count`."""

    def part(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[start : start + length] if tensor.dim() and len(tensor) == count else tensor

    return pytree.tree_map_only(torch.Tensor, part, batch)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _bytes(batches: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(batches))


def free_memory(device: torch.device | str = "cpu") -> int:
    """Bytes that a device has left, as far as it can be told."""
    if torch.device(device).type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    lines = Path("/proc/meminfo").read_text().splitlines() if Path("/proc/meminfo").exists() else []
    available = [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")]
    return available[0] if available else MOST_BYTES
