"""Other shapes: arguments for a network like an example's, but of another size and batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from aacp.data.examples import tensors_in
from aacp.pytorch.internals import pytree

STRIDE = 32  # most networks accept only multiples of their stride, which is at most this
SMALLEST = 4  # dimensions of fewer elements are not sizes of pictures or lengths of sequences


def another_size(size: int) -> int:
    """A size that networks for this size are likely to accept; a smaller one, which costs less, for large sizes."""
    if size < SMALLEST:
        return size
    if size % STRIDE:
        return size + (size + 1) // 2
    return size + STRIDE if size < 3 * STRIDE else size - size // (3 * STRIDE) * STRIDE


def doubled_size(size: int) -> int:
    """Twice the size, which is a multiple of everything that the size is a multiple of."""
    return 2 * size if size >= SMALLEST else size


@dataclass(frozen=True)
class Change:
    """What is changed in the shapes of an example: some dimensions of its tensors, and the batch or not."""

    first: int  # the first dimension that is changed
    last: int  # the first dimension after those
    size: Callable[[int], int]
    batch: bool

    def __call__(self, shape: torch.Size, batch: int) -> list[int]:
        """The shape for a tensor in place of its own."""
        changed = [self.size(size) if self.first <= dim < self.last else size for dim, size in enumerate(shape)]
        if self.batch and changed and shape[0] == batch:
            changed[0] += 1
        return changed


PICTURE = (2, 99)  # [n, channels, ...]: all dimensions after the channels
SEQUENCE = (1, 2)  # [n, length] or [n, length, channels]
CHANGES = (
    Change(*PICTURE, another_size, True),
    Change(*SEQUENCE, another_size, True),
    Change(*PICTURE, doubled_size, True),
    Change(*PICTURE, another_size, False),
    Change(0, 0, another_size, True),
)


def other_examples(arguments: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Arguments of other shapes, the most telling first; the network may reject them.

    Their elements are drawn from those of the same tensor of the example, so that their range is right.
    """
    batch = next((tensor.shape[0] for tensor in tensors_in(arguments) if tensor.dim()), 1)
    seen = [_shapes(arguments)]
    for change in CHANGES:
        generator = torch.Generator().manual_seed(0)

        def changed(leaf: Any, change: Change = change, generator: torch.Generator = generator) -> Any:
            return _drawn(leaf, change(leaf.shape, batch), generator) if isinstance(leaf, torch.Tensor) else leaf

        other = pytree.tree_map(changed, arguments)
        if _shapes(other) not in seen:
            seen.append(_shapes(other))
            yield other


def _drawn(tensor: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """A tensor of this shape with elements of the given one, drawn at random."""
    if list(tensor.shape) == shape:
        return tensor
    places = torch.randint(tensor.numel(), shape, generator=generator).to(tensor.device)
    return tensor.detach().flatten()[places]


def _shapes(arguments: tuple[Any, ...]) -> list[torch.Size]:
    return [tensor.shape for tensor in tensors_in(arguments)]
