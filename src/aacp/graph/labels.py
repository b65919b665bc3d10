"""Labels: which channel every element of a tensor belongs to, and which channels must go together.

A tensor carries *labels*: integer tensors of its own shape whose entries are channel ids (-1: no channel, always
there). Most activations carry one, along their channel dimension; a weight carries one per dimension; an element is
removed when any of its channels is. Dimensions along which a label does not vary have stride 0, so a label costs
little and layout operators can be run on it as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

Labels = tuple[torch.Tensor, ...]
Ids = NDArray[np.int64]


class Ties:
    """Channel ids, which of them go together (union-find), and which must stay, each with its reason."""

    def __init__(self) -> None:
        self._parent: Ids = np.zeros(0, dtype=np.int64)
        self._count = 0
        self._pending: list[tuple[Ids, Ids]] = []
        self._fixed: list[tuple[Ids, str]] = []

    def fresh(self, count: int) -> Ids:
        """New ids, tied to nothing yet."""
        ids = np.arange(self._count, self._count + count, dtype=np.int64)
        self._count += count
        return ids

    def tie(self, first: Ids, second: Ids, reason: str) -> None:
        """Let ids go together, pair by pair; an id paired with -1 (something that is always there) must stay."""
        first, second = np.broadcast_arrays(first.reshape(-1), second.reshape(-1))
        both = (first >= 0) & (second >= 0)
        if (first[both] != second[both]).any():
            self._pending.append((first[both], second[both]))
        self.fix(np.maximum(first, second)[~both], f"tied to channels that stay: {reason}")

    def fix(self, ids: Ids, reason: str) -> None:
        """Forbid the removal of these ids."""
        ids = ids[ids >= 0]
        if len(ids):
            self._fixed.append((np.unique(ids), reason))

    def roots(self) -> Ids:
        """One representative per id: two ids go together if theirs are equal."""
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
        """Why each root that must stay has to: the first reason that was given."""
        roots = self.roots()
        found: dict[int, str] = {}
        for ids, reason in self._fixed:
            for root in np.unique(roots[ids]).tolist():
                found.setdefault(root, reason)
        return found


def _unite(parent: Ids, first: Ids, second: Ids) -> Ids:
    """Connected components by hooking larger roots under smaller ones, then halving every path to its root."""
    parent = _flatten(parent)
    while True:
        a, b = parent[first], parent[second]
        apart = a != b
        if not apart.any():
            return parent
        np.minimum.at(parent, np.maximum(a, b)[apart], np.minimum(a, b)[apart])
        parent = _flatten(parent)


def _flatten(parent: Ids) -> Ids:
    while True:
        grandparent = parent[parent]
        if (grandparent == parent).all():
            return parent
        parent = grandparent


def along(ids: Ids, dim: int, shape: Sequence[int]) -> torch.Tensor:
    """The label of a tensor of `shape` whose index along `dim` says the channel."""
    view = [1] * len(shape)
    view[dim] = len(ids)
    return torch.from_numpy(ids).reshape(view).expand(*shape)


def varying(label: torch.Tensor) -> tuple[int, ...]:
    """The dimensions along which a (compact) label changes."""
    return tuple(dim for dim in range(label.dim()) if label.size(dim) > 1 and label.stride(dim) != 0)


def compact(label: torch.Tensor) -> torch.Tensor:
    """The same label with stride 0 wherever it does not change."""
    small = label
    for dim in varying(label):
        head = small.narrow(dim, 0, 1)
        if torch.equal(head.expand_as(small), small):
            small = head
    return small.expand(label.shape)


def is_empty(label: torch.Tensor) -> bool:
    """Whether no element belongs to a channel."""
    return bool((core(label) < 0).all())


def core(label: torch.Tensor) -> torch.Tensor:
    """The part of a compact label that holds all there is to know: one element along dimensions without change."""
    for dim in range(label.dim()):
        if label.size(dim) > 1 and label.stride(dim) == 0:
            label = label.narrow(dim, 0, 1)
    return label


def tidy(labels: Iterable[torch.Tensor]) -> Labels:
    """Compact labels, without those that say nothing."""
    compacted = (compact(label) for label in labels)
    return tuple(label for label in compacted if not is_empty(label))


def ids_of(label: torch.Tensor) -> Ids:
    """All ids of a label, flat (with repeats where the label varies)."""
    return core(label).reshape(-1).numpy()
