"""Orders of channels by what the layers that read them lose, and the error of every width of every group.

"activation": a channel's variance times the squared norm of the weights that read it. "obs" (optimal brain surgeon):
the unit whose removal costs its readers least, after their weights are repaired, is removed first; the weights are
repaired, and so on. Both are summed over all products that read the unit. Errors of a product's outputs are weighted by
how much they change what the network returns (`sensitivity.py`), or else are relative to the variance of its outputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from aacp.channels.elements import ChannelGroup
from aacp.repairs.factors import ridge_factor
from aacp.repairs.grams import Gram, Grams

Scores = NDArray[np.float64]
RIDGE = 1e-3  # added to the diagonal of a covariance, relative to its mean
MAX_SHARE = 1 - 1e-4  # of the error of a whole group: keeps its logarithm finite
MAX_REMOVALS = 256  # steps in which a group is removed; a wider group loses several units in each


def activation_scores(grams: Grams) -> tuple[Scores, NDArray[np.bool_]]:
    """For each unit of the graph what it adds to the outputs of its readers; and whether anything reads it."""
    scores = np.zeros(len(grams.graph.unit_groups))
    is_read = np.zeros(len(scores), dtype=bool)
    for gram in grams:
        units = gram.units.numpy()
        is_read[units[units >= 0]] = True
        added = _weighted(grams, gram).square().sum(dim=1) * gram.covariance.diagonal(dim1=1, dim2=2)
        np.add.at(scores, units[units >= 0], added.cpu().numpy()[units >= 0])
    return scores, is_read


@dataclass(frozen=True)
class Removal:
    """The removal of all units of one group, one after another.

    Args:
        order: the units, counted from 0 within the group; the first is removed first.
        errors: the sum of the errors of all readers after 0, 1, 2, ... removals.
    """

    order: NDArray[np.int64]
    errors: NDArray[np.float64]

    @property
    def curve(self) -> NDArray[np.float64]:
        """What is lost for each number of kept units, from 0 to the width: -E log(1 - e/E) for an error e of at most E.

        Errors e stay below E even if nothing of a group is left, which would suggest to sacrifice whole groups. The
        logarithm equals e where it is small and grows without bound.
        """
        whole = max(float(self.errors[-1]), np.finfo(np.float64).tiny)
        shares = np.minimum(self.errors / whole, MAX_SHARE)
        return np.asarray(-whole * np.log1p(-shares)[::-1])

    @property
    def scores(self) -> Scores:
        """A number for each unit: the larger, the later it is removed."""
        scores = np.empty(len(self.order))
        scores[self.order] = np.arange(len(self.order))
        return scores


def removal(grams: Grams, group: ChannelGroup, order: NDArray[np.int64] | None = None) -> Removal | None:
    """The removal of the units of a group; None if no product reads them.

    Args:
        grams: the Gram matrices of the original network.
        group: one of the groups of the graph.
        order: which unit is removed first, second and so on; None chooses at each step what costs least.
    """
    readers = _readers(grams, group)
    if not readers:
        return None
    stride = -(-group.width // MAX_REMOVALS)
    removed: list[int] = []
    errors = [0.0]
    while len(removed) < group.width:
        chosen = _cheapest(readers, removed, stride) if order is None else order.tolist()
        steps = np.sum([reader.remove(chosen) for reader in readers], axis=0)
        errors += (errors[-1] + np.cumsum(steps)).tolist()
        removed += chosen
    return Removal(np.array(removed, dtype=np.int64), np.array(errors))


def _cheapest(readers: Sequence[Reader], removed: list[int], count: int) -> list[int]:
    """The units whose removal costs least now, the cheapest first."""
    costs = np.sum([reader.costs() for reader in readers], axis=0)
    costs[removed] = np.inf
    left = len(costs) - len(removed)
    chosen: list[int] = np.argsort(costs, kind="stable")[: min(count, left)].tolist()
    return chosen


class Reader:
    """What one product, or one group of a grouped convolution, loses when units of a channel group are removed.

    Args:
        places: (units, columns of each): where the columns of each unit lie; the same number for each unit.
        inverse: the inverse of the covariance of all columns that the product reads.
        squares: W'W of its weighted matrix W.
        present: the units that it reads, in the order of `places`.
        width: the number of units of the channel group.
    """

    def __init__(
        self, places: torch.Tensor, inverse: torch.Tensor, squares: torch.Tensor, present: list[int], width: int
    ) -> None:
        flat = places.flatten()
        self._columns = places.shape[1]
        self._inverse = inverse[flat[:, None], flat]
        self._squares = squares[flat[:, None], flat]
        self._place = {unit: place for place, unit in enumerate(present)}
        self._gone = torch.zeros(len(present), dtype=torch.bool, device=inverse.device)
        self._present = np.array(present, dtype=np.int64)
        self._width = width

    def costs(self) -> Scores:
        """The error that the removal of each unit would add now; 0 for units that it does not read."""
        blocks = self._blocks(self._inverse)
        blocks[self._gone] = torch.eye(self._columns, dtype=blocks.dtype, device=blocks.device)
        added = torch.linalg.solve(blocks, self._blocks(self._squares)).diagonal(dim1=1, dim2=2).sum(dim=1)
        costs = np.zeros(self._width)
        costs[self._present] = added.cpu().numpy()
        return costs

    def _blocks(self, matrix: torch.Tensor) -> torch.Tensor:
        """The diagonal block of each unit."""
        count = len(self._gone)
        split = matrix.reshape(count, self._columns, count, self._columns)
        return split.diagonal(dim1=0, dim2=2).permute(2, 0, 1).clone()

    def remove(self, units: Sequence[int]) -> Scores:
        """Remove units and repair the weights; returns the error that each of them adds, in this order."""
        here = [self._place.get(unit) for unit in units]
        places = torch.tensor([place for place in here if place is not None], dtype=torch.int64)
        places = places.to(self._inverse.device)
        errors = iter(self._remove(places)) if len(places) else iter(())
        return np.array([0.0 if place is None else next(errors) for place in here])

    def _remove(self, places: torch.Tensor) -> list[float]:
        columns = (places[:, None] * self._columns + torch.arange(self._columns, device=places.device)).flatten()
        inverse = self._inverse[columns[:, None], columns]
        squares = self._squares[columns[:, None], columns]
        errors = _errors_in_order(inverse, squares, self._columns)
        self._gone[places] = True
        if bool(self._gone.all()):
            return errors
        across = torch.linalg.solve(inverse, self._inverse[columns])  # what each column takes over of those removed
        crossed = across.T @ self._squares[columns]
        self._squares += across.T @ squares @ across - crossed - crossed.T
        self._inverse -= across.T @ self._inverse[columns]
        return errors


def _errors_in_order(inverse: torch.Tensor, squares: torch.Tensor, columns: int) -> list[float]:
    """The error that each block of columns adds if blocks are removed in order, from their parts of both matrices."""
    # With inverse = L L' the block k adds the norm of rows k of L^-1 F, where F F' = squares.
    factors = torch.linalg.cholesky(inverse)
    half = torch.linalg.solve_triangular(factors, squares, upper=False)
    whole = torch.linalg.solve_triangular(factors, half.T, upper=False)
    errors: list[float] = whole.diagonal().reshape(-1, columns).sum(dim=1).clamp(min=0).tolist()
    return errors


def _readers(grams: Grams, group: ChannelGroup) -> list[Reader]:
    """What reads the units of a group."""
    start = grams.graph.slice_of(group).start
    readers: list[Reader] = []
    for gram in grams:
        is_read = (gram.units >= start) & (gram.units < start + group.width)
        if bool(is_read.any()):
            readers += _readers_of(grams, gram, start, group.width)
    return readers


def _readers_of(grams: Grams, gram: Gram, start: int, width: int) -> list[Reader]:
    readers = []
    for units, weight, covariance in zip(gram.units, _weighted(grams, gram), gram.covariance, strict=True):
        local = units - start
        columns = ((local >= 0) & (local < width)).nonzero().flatten()
        if not len(columns):
            continue
        by_unit = columns[local[columns].argsort(stable=True)]
        present, counts = local[columns].unique(return_counts=True)
        places = by_unit.reshape(len(present), int(counts[0])).to(covariance.device)  # all units occur equally often
        inverse = torch.cholesky_inverse(ridge_factor(covariance[None], RIDGE)[0])
        readers.append(Reader(places, inverse, weight.T @ weight, present.tolist(), width))
    return readers


def _weighted(grams: Grams, gram: Gram) -> torch.Tensor:
    """The folded matrix of a product, scaled so that squared errors of its outputs add up over all products."""
    matrix: torch.Tensor = grams.matrix(gram) / math.sqrt(gram.taps)  # the channel form sums over taps
    found = grams.sensitivities.get(gram.product.weight)
    if found is not None:
        return matrix * found.repeat_interleave(gram.taps, dim=1).sqrt()[:, :, None]
    energy = float(((matrix @ gram.covariance) * matrix).sum())
    return matrix / math.sqrt(energy) if energy > 0 else matrix
