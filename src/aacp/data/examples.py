"""Batches of examples as values: their inputs, targets, size and bytes, and how they are split and joined.

A batch is (inputs, targets) or inputs alone, as the loader gives it. Inputs are one tensor, a tuple of tensors, or a
dictionary by argument name, as for `trace`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from aacp.errors import InvalidData
from aacp.pytorch.internals import pytree

Shapes = tuple[tuple[tuple[int, ...], torch.dtype], ...]  # shape and type of each tensor of inputs


def inputs_of(batch: Any) -> Any:
    """The inputs of a batch: the first of a pair, or the whole batch; several inputs are a tuple."""
    inputs = batch[0] if isinstance(batch, (tuple, list)) and len(batch) == 2 else batch
    return tuple(inputs) if isinstance(inputs, list) else inputs  # torch's loaders turn tuples into lists


def targets_of(batch: Any) -> Any:
    """The targets of a batch, or None if it has none."""
    return batch[1] if isinstance(batch, (tuple, list)) and len(batch) == 2 else None


def has_targets(batch: Any) -> bool:
    """Whether a batch has targets: it is a pair whose second part is not None."""
    return targets_of(batch) is not None


def call(model: nn.Module, inputs: Any) -> Any:
    """The outputs of the network for inputs: a tensor, a tuple of several, or a dictionary by argument name."""
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def batch_size_of(batch: Any) -> int:
    """The number of examples of a batch."""
    tensors = tensors_in(inputs_of(batch))
    if not tensors or not tensors[0].dim():
        raise InvalidData(
            f"A batch is a {type(batch).__name__} without a tensor of inputs. "
            "Give batches of (inputs, targets), or of inputs alone, as torch tensors (torch.from_numpy makes them)."
        )
    return len(tensors[0])


def bytes_of(value: Any) -> int:
    """The memory of all tensors in a batch, in an example or in a list of them."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))


def tensors_in(value: Any) -> tuple[torch.Tensor, ...]:
    """The tensors of a nested value, such as a batch or the inputs of a network, in order."""
    return tuple(leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def are_on_host(source: Any) -> bool:
    """Whether examples of a data set are in the host's memory, as the first one is: only these come from workers."""
    with torch.random.fork_rng(devices=[]):  # reading an example may draw an augmentation
        return all(tensor.device.type == "cpu" for tensor in tensors_in(source[0]))


def shapes_of(inputs: Any) -> Shapes:
    """The shape and the type of each tensor of inputs."""
    return tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors_in(inputs))


def moved(batch: Any, device: torch.device | str, in_background: bool = False) -> Any:
    """A batch with its tensors on a device, without the operations that computed them.

    Args:
        batch: the batch.
        device: where its tensors are needed.
        in_background: True lets a copy to a GPU wait for its turn there while the processor continues. The batch must
            not be written to afterwards, as a user's loader might, nor be copied to the host, where it may be read
            before it has arrived.
    """

    def there(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(device, non_blocking=in_background)

    return pytree.tree_map_only(torch.Tensor, there, batch)


def copied(batch: Any) -> Any:
    """A batch with copies of its tensors."""
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.clone, batch)


def narrowed(inputs: Any, start: int, length: int, count: int) -> Any:
    """The `length` examples from position `start` of the inputs of `count`."""

    def part(tensor: torch.Tensor) -> torch.Tensor:
        return tensor[start : start + length] if _rows(tensor) == count else tensor

    return pytree.tree_map_only(torch.Tensor, part, inputs)


def narrowed_batch(batch: Any, start: int, length: int) -> Any:
    """The `length` examples from position `start` of a batch: of its inputs, and of targets that are one for each."""
    count = batch_size_of(batch)
    targets = targets_of(batch)

    def part(leaf: Any) -> Any:
        if leaf is targets:
            return pytree.tree_map(of_targets, leaf, is_leaf=lambda value: _is_one_each(value, count))
        return narrowed(leaf, start, length, count)

    def of_targets(leaf: Any) -> Any:
        return leaf[start : start + length] if _rows(leaf) == count else leaf

    return pytree.tree_map(part, batch, is_leaf=lambda value: value is targets)


def targets_of_others(batch: Any) -> torch.Tensor | None:
    """A tensor of targets that are not one for each example, so that a part of the batch would have those of others."""
    count = batch_size_of(batch)
    tensors = (leaf for leaf in _leaves_of_targets(batch, count) if isinstance(leaf, torch.Tensor))
    return next((tensor for tensor in tensors if _rows(tensor) not in (None, count)), None)


def _leaves_of_targets(batch: Any, count: int) -> list[Any]:
    """The tensors and others in the targets of a batch of `count` examples, and the lists with one for each."""
    leaves: list[Any] = pytree.tree_leaves(targets_of(batch), is_leaf=lambda value: _is_one_each(value, count))
    return leaves if has_targets(batch) else []


def _is_one_each(targets: Any, count: int) -> bool:
    """Whether targets are a list with one entry for each example, not one of tensors that hold all examples each."""
    if type(targets) not in (list, tuple) or len(targets) != count:
        return False
    is_of_dictionaries = all(isinstance(entry, dict) for entry in targets)
    return count == 1 or is_of_dictionaries or not all(_holds_all(entry, count) for entry in targets)


def _holds_all(entry: Any, count: int) -> bool:
    """Whether an entry of a list of targets, or each value in it, has a row for each example."""
    parts = tuple(entry.values()) if isinstance(entry, dict) else entry
    is_nested = isinstance(parts, (list, tuple)) and len(parts) > 0
    return _rows(entry) == count or (is_nested and all(_holds_all(part, count) for part in parts))


def _rows(value: Any) -> int | None:
    """The length of a tensor, an array or a list; None for anything else, such as a single number."""
    is_sized = isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) > 0
    return len(value) if is_sized else None


def split_evenly(batches: list[Any], batch_size: int) -> list[Any]:
    """The same examples in batches of one size, of which the last may be smaller; unchanged if shapes differ."""
    if len({_signature(batch) for batch in batches}) != 1 or _signature(batches[0]) is None:
        return batches
    total = sum(map(batch_size_of, batches))
    sizes = [min(batch_size, total - start) for start in range(0, total, batch_size)]
    return batches if [batch_size_of(batch) for batch in batches] == sizes else _cut(batches, batch_size)


def rebatched(batches: Iterable[Any], batch_size: int) -> Iterator[Any]:
    """The same examples in batches of one size, read one after another; where shapes change, a smaller batch ends."""
    held: list[Any] = []  # batches of one signature whose examples do not fill a batch yet
    common = None  # their signature
    count = 0  # their examples
    for batch in batches:
        signature = _signature(batch)
        if held and signature != common:
            yield from _cut(held, batch_size)
            held = []
            count = 0
        if signature is None:
            yield batch
            continue
        common = signature
        held.append(batch)
        count += batch_size_of(batch)
        if count >= batch_size:
            *whole, last = _cut(held, batch_size)
            yield from whole
            held = [last]
            if batch_size_of(last) == batch_size:
                yield held.pop()
            count %= batch_size
    if held:
        yield from _cut(held, batch_size)


def shuffled_batches(batches: list[Any], order: torch.Generator) -> Iterator[Any]:
    """The same examples in another order, in batches of the same sizes; if shapes differ, whole batches are moved."""
    sizes = [batch_size_of(batch) for batch in batches]
    if len({_signature(batch) for batch in batches}) != 1 or _signature(batches[0]) is None:
        yield from (batches[place] for place in torch.randperm(len(batches), generator=order).tolist())
        return
    flat = [pytree.tree_flatten(batch) for batch in batches]
    places = [(number, row) for number, size in enumerate(sizes) for row in range(size)]
    drawn = [places[place] for place in torch.randperm(len(places), generator=order).tolist()]
    start = 0
    for size in sizes:
        chosen = drawn[start : start + size]
        leaves = [
            torch.stack([flat[number][0][leaf][row] for number, row in chosen]) for leaf in range(len(flat[0][0]))
        ]
        yield pytree.tree_unflatten(leaves, flat[0][1])
        start += size


def _cut(batches: list[Any], batch_size: int) -> list[Any]:
    """Batches of one signature, joined and cut again; nothing is copied where each of them can be cut by itself."""
    *whole_ones, _ = batches
    if whole_ones and not any(batch_size_of(batch) % batch_size for batch in whole_ones):
        return [part for batch in batches for part in _cut([batch], batch_size)]
    leaves = [pytree.tree_flatten(batch) for batch in batches]
    columns = list(zip(*(leaf for leaf, _ in leaves), strict=True))
    whole = [column[0] if len(column) == 1 else torch.cat(column) for column in columns]
    chunks = zip(*(torch.split(tensor, batch_size) for tensor in whole), strict=True)
    return [pytree.tree_unflatten(chunk, leaves[0][1]) for chunk in chunks]


def _signature(batch: Any) -> tuple[Any, ...] | None:
    """What two batches must have in common to be joined; None if a batch contains anything but tensors of examples."""
    leaves, spec = pytree.tree_flatten(batch)
    count = batch_size_of(batch)
    # A list of one tensor for each example is no leaf there: its tensors may by chance have as many rows as it has.
    found = [*leaves, *_leaves_of_targets(batch, count)]
    if not all(isinstance(leaf, torch.Tensor) and _rows(leaf) == count for leaf in found):
        return None
    return (str(spec), *((tuple(leaf.shape[1:]), leaf.dtype) for leaf in leaves))
