"""Inheritance: the channels of each group in order of importance, so that every structure keeps the first ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from aacp.channels import ChannelGraph
from aacp.estimate.importance import Importance, Scores, unit_importance
from aacp.graph.surgery import shrink
from aacp.structure import Structure


@dataclass(frozen=True, eq=False)
class Order:
    """The rank of every unit within its group, 0 the most important: a structure keeps those below its count."""

    graph: ChannelGraph
    ranks: NDArray[np.int64]

    @classmethod
    def of(cls, graph: ChannelGraph, scores: Scores) -> Order:
        """Larger scores first; of equals the one with the lower index."""
        ranks = np.zeros(len(scores), dtype=np.int64)
        start = 0
        for group in graph.groups:
            order = np.argsort(-scores[start : start + group.width], kind="stable")
            ranks[start + order] = np.arange(group.width)
            start += group.width
        return cls(graph, ranks)

    def counts_per_group(self, structure: Iterable[int]) -> NDArray[np.int64]:
        """What each group keeps, frozen ones included; the structure is checked."""
        counts = Structure(structure)
        self.graph.lane_sizes(counts.counts)
        free = iter(counts)
        return np.array([group.width if group.frozen is not None else next(free) for group in self.graph.groups])

    def units(self, structure: Iterable[int]) -> NDArray[np.bool_]:
        """Which units a structure keeps."""
        kept: NDArray[np.bool_] = self.ranks < self.counts_per_group(structure)[self.graph.unit_groups]
        return kept

    def kept(self, structure: Iterable[int]) -> dict[str, NDArray[np.int64]]:
        """Which channels each free group keeps, in the order they have in the network."""
        units, chosen, start = self.units(structure), {}, 0
        for group in self.graph.groups:
            if group.frozen is None:
                chosen[group.name] = np.flatnonzero(units[start : start + group.width])
            start += group.width
        return chosen


def inherit(
    model: nn.Module,
    graph: ChannelGraph,
    structure: Iterable[int],
    *,
    importance: Importance = "l1",
    seed: int = 0,
    example: Any = None,
) -> nn.Module:
    """A smaller network that keeps the most important channels of each group; the model is not touched."""
    order = Order.of(graph, unit_importance(model, graph, importance, seed))
    return shrink(model, graph, order.kept(structure), example=example)
