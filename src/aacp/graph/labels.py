"""Labels: the channel of every element of a tensor, and which channels must be removed together.

A tensor has *labels*: integer tensors of its shape whose entries are channel ids (-1: the element belongs to no channel
and always stays). Most activations have one label, which varies along the channel dimension; a weight has one per
dimension. An element is removed if any of its channels is. Dimensions along which a label does not vary have stride 0,
so labels need little memory, and layout operators can be run on them directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

Labels = tuple[torch.Tensor, ...]
Ids = NDArray[np.int64]


class Ties:
    """Channel ids: which of them must be removed together (union-find), and which must stay and why."""

    def __init__(self) -> None:
        self._parent: Ids = np.zeros(0, dtype=np.int64)
        self._count = 0
        self._pending: list[tuple[Ids, Ids]] = []
        self._fixed: list[tuple[Ids, str]] = []

    def fresh(self, count: int) -> Ids:
        """New ids, which are not tied to others yet."""
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        return ids

    def tie(self, first: Ids, second: Ids, reason: str) -> None:
        """Tie ids pair by pair: they can only be removed together. An id paired with -1 must stay."""
        first, second = np.broadcast_arrays(first.reshape(-1), second.reshape(-1))
        both = (first >= 0) & (second >= 0)
        if (first[both] != second[both]).any():
            self._pending.append((first[both], second[both]))
        self.fix(np.maximum(first, second)[~both], f"tied to channels that must stay: {reason}")

    def fix(self, ids: Ids, reason: str) -> None:
        """Mark ids that must stay."""
        ids = ids[ids >= 0]
        if len(ids):
            self._fixed.append((np.unique(ids), reason))

    def roots(self) -> Ids:
        """One representative for each id: tied ids have the same one."""
        if not self._pending and len(self._parent) == self._count:
            return self._parent
        parent = np.concatenate([self._parent, np.arange(len(self._parent), self._count, dtype=np.int64)])
        if self._pending:
            first = np.concatenate([pair[0] for pair in self._pending])
            second = np.concatenate([pair[1] for pair in self._pending])
            parent = _unite(parent, first, second)
            self._pending.clear()
        self._parent = parent
        return parent

    def reasons(self) -> dict[int, str]:
        """The first reason given for each root that must stay."""
        roots = self.roots()
        found: dict[int, str] = {}
        for ids, reason in self._fixed:
            for root in np.unique(roots[ids]).tolist():
                found.setdefault(root, reason)
        return found


def _unite(parent: Ids, first: Ids, second: Ids) -> Ids:
    """Connected components: link larger roots to smaller ones, then shorten every path to its root."""
    parent = _flatten(parent)
    while True:
        a = parent[first]
        b = parent[second]
        apart = a != b
        if not apart.any():
            return parent
        np.minimum.at(parent, np.maximum(a, b)[apart], np.minimum(a, b)[apart])
        parent = _flatten(parent)


def _flatten(parent: Ids) -> Ids:
    """Let every id point directly to its root."""
    while True:
        grandparent = parent[parent]
        if (grandparent == parent).all():
            return parent
        parent = grandparent


def along(ids: Ids, dim: int, shape: Sequence[int]) -> torch.Tensor:
    """The label of a tensor of `shape` whose channels lie along `dim`."""
    view = [1] * len(shape)
    view[dim] = len(ids)
    return torch.from_numpy(ids).reshape(view).expand(*shape)


def varying(label: torch.Tensor) -> tuple[int, ...]:
    """The dimensions along which a compact label varies."""
    return tuple(dim for dim in range(label.dim()) if label.size(dim) > 1 and label.stride(dim) != 0)


def compact(label: torch.Tensor) -> torch.Tensor:
    """The same label with stride 0 in each dimension along which it does not vary."""
    small = label
    for dim in varying(label):
        head = small.narrow(dim, 0, 1)
        if torch.equal(head.expand_as(small), small):
            small = head
    return small.expand(label.shape)


def is_empty(label: torch.Tensor) -> bool:
    """Whether no element of a label belongs to a channel."""
    return bool((core(label) < 0).all())


def core(label: torch.Tensor) -> torch.Tensor:
    """A compact label with one element in each dimension along which it does not vary."""
    for dim in range(label.dim()):
        if label.size(dim) > 1 and label.stride(dim) == 0:
            label = label.narrow(dim, 0, 1)
    return label


def tidy(labels: Iterable[torch.Tensor]) -> Labels:
    """Compact labels, without the empty ones."""
    compacted = (compact(label) for label in labels)
    return tuple(label for label in compacted if not is_empty(label))


def ids_of(label: torch.Tensor) -> Ids:
    """All ids of a label as a flat array; an id occurs several times if the label varies along several dimensions."""
    return core(label).reshape(-1).numpy()
