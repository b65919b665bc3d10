"""Curves: the structure with the least total error, from the error of every width of every group; nothing is evaluated.

This is a knapsack: errors add up over groups, and every limit of the budget must hold. Costs may be of any form, so it
is solved by local search: greedy steps from three starts, improved by exchanges of width between groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget
from aacp.errors import InvalidOption
from aacp.search.rescaling import Genes, Rescaling
from aacp.search.seeds import largest
from aacp.user.values import counted

Errors = NDArray[np.float64]

MANY_GENES = 40  # with more genes only one start is improved by exchanges
MAX_ROUNDS = 200  # rounds of exchanges; a round that improves nothing ends them earlier
TINY_GAIN = 1e-12  # relative: a smaller decrease of the error is rounding


@dataclass(frozen=True, eq=False)
class ErrorCurves:
    """The error that a group causes, for every number of units that it may keep.

    Args:
        errors: for each group, by name, one error for each number of kept units from 0 to the width. Errors of
            different groups must have one unit, since a structure is judged by their sum.
    """

    errors: Mapping[str, Errors]

    def by_gene(self, space: SearchSpace) -> list[Errors]:
        """For each gene of a space the error of each of its values; errors of tied groups are added."""
        levels = int(space.levels.max(initial=1))
        counts = space.counts(np.minimum(np.arange(levels)[:, None], space.levels - 1))
        errors = [self._at(name, counts[:, place]) for place, name in enumerate(space.names)]
        summed = [np.sum([errors[place] for place in places], axis=0) for places in space.coordinates]
        return [total[:level] for total, level in zip(summed, space.levels.tolist(), strict=True)]

    def _at(self, name: str, counts: NDArray[np.int64]) -> Errors:
        """The errors of one group at these numbers of kept units."""
        curve = np.asarray(self.errors.get(name, ()), dtype=np.float64)
        if len(curve) <= counts.max() or not np.isfinite(curve[counts]).all():
            raise InvalidOption(
                f"The error curve of group {name!r} has {counted(len(curve), 'value')}, but the group keeps up to "
                f"{counts.max()} units. Give a finite error for every number of units from 0 to the width."
            )
        return curve[counts]

    def best(self, space: SearchSpace, budget: Budget) -> Structure:
        """The structure within a budget whose errors have the least sum, as far as local search finds it."""
        return space.structure(Knapsack(self.by_gene(space), Rescaling(space, budget)).solve())


class Knapsack:
    """The least sum of errors within a budget.

    Args:
        errors: for each gene the error of each of its values.
        rescaling: holds the space and the budget.
    """

    def __init__(self, errors: Sequence[Errors], rescaling: Rescaling) -> None:
        self._space = rescaling.space
        self._budget = rescaling.budget
        self._rescaling = rescaling
        self._top = self._space.levels - 1
        self._table = np.zeros((len(errors), int(self._space.levels.max(initial=1))))
        for row, values in zip(self._table, errors, strict=True):
            row[: len(values)] = values
        # Steps of 1, 2, 4, ...: errors and latencies may have stairs that a single step does not leave.
        self._strides = 2 ** np.arange(max(1, int(self._top.max(initial=1)).bit_length()))

    def solve(self) -> Genes:
        """The genes of the best structure found, from the full, the uniform and the smallest structure.

        With many groups only the best of the three is improved by exchanges, which take the square of their number.
        """
        flat = largest(np.ones(len(self._space)), self._rescaling)
        starts = [self._top, flat, np.zeros_like(self._top)]
        greedy = sorted([self._grown(self._shrunk(start)) for start in starts], key=self._error)
        several = greedy if len(self._space) <= MANY_GENES else greedy[:1]
        return min([self._improved(genes) for genes in several], key=self._error)

    def _error(self, genes: Genes) -> float:
        return float(self._errors(genes[None])[0])

    def _errors(self, rows: Genes) -> Errors:
        """The sum of errors of each row."""
        return np.asarray(self._table[np.arange(len(self._space)), rows].sum(axis=1))

    def _costs(self, rows: Genes) -> Errors:
        """The costs of each row as shares of the bounds, one column per limit."""
        counts = self._space.counts(rows)
        costs = [np.asarray(limit.cost(counts), dtype=np.float64) / limit.bound for limit in self._budget.limits]
        return np.stack(costs, axis=1) if costs else np.zeros((len(rows), 0))

    def _fits(self, rows: Genes) -> NDArray[np.bool_]:
        return self._budget.feasible(self._space.counts(rows))

    # -- greedy steps --------------------------------------------------------------------------------------------------

    def _moves(self, genes: Genes, direction: int, fixed: int | None = None) -> Genes:
        """All rows that differ from `genes` in one gene, which moves by a stride up (1) or down (-1).

        Args:
            genes: one row of genes.
            direction: 1 or -1.
            fixed: a gene that does not move; None if all may.
        """
        reached = np.clip(genes[:, None] + direction * self._strides, 0, self._top[:, None])
        moved = reached != genes[:, None]
        moved[:, 1:] &= reached[:, 1:] != reached[:, :-1]  # long strides end at the same bound
        if fixed is not None:
            moved[fixed] = False
        gene, stride = np.nonzero(moved)
        rows = np.tile(genes, (len(gene), 1))
        rows[np.arange(len(gene)), gene] = reached[gene, stride]
        return rows

    def _shrunk(self, genes: Genes, fixed: int | None = None) -> Genes:
        """Steps down, each with the least error per relative saving of the limits that still break.

        Only the part of a saving that is needed counts. If `fixed` is given, the result may break a limit.
        """
        while not self._fits(genes[None])[0]:
            rows = self._moves(genes, -1, fixed)
            if not len(rows):
                return genes
            costs = self._costs(genes[None])
            excess = np.maximum(costs - 1, 0)
            saved = np.minimum(costs - self._costs(rows), excess).sum(axis=1)
            rise = self._errors(rows) - self._error(genes)
            genes = rows[_best_ratio(rise, saved)]
        return genes

    def _grown(self, genes: Genes, fixed: int | None = None) -> Genes:
        """Steps up that fit, each with the largest decrease of the error per relative cost, while one decreases it."""
        while True:
            rows = self._moves(genes, 1, fixed)
            rows = rows[self._fits(rows)] if len(rows) else rows
            gain = self._error(genes) - self._errors(rows)
            rows, gain = rows[gain > 0], gain[gain > 0]
            if not len(rows):
                return genes
            added = np.maximum((self._costs(rows) - self._costs(genes[None])).sum(axis=1), 1e-12)
            genes = rows[np.argmax(gain / added)]

    # -- exchanges -----------------------------------------------------------------------------------------------------

    def _improved(self, genes: Genes) -> Genes:
        """Exchange width between groups until that no longer decreases the error."""
        for _ in range(MAX_ROUNDS):
            before = self._error(genes)
            for gene in range(len(genes)):
                genes = self._exchanged(genes, gene)
            if not self._is_less(genes, before):
                break
        return genes

    def _exchanged(self, genes: Genes, gene: int) -> Genes:
        """The best structure in which one gene has moved, and others pay for that or use what it saves."""
        values = np.clip(genes[gene] + np.concatenate([self._strides, -self._strides]), 0, self._top[gene])
        best = genes
        for value in np.unique(values[values != genes[gene]]):
            trial = genes.copy()
            trial[gene] = value
            trial = self._grown(self._shrunk(trial, fixed=gene), fixed=gene)
            if self._is_less(trial, self._error(best)) and self._fits(trial[None])[0]:
                best = trial
        return best

    def _is_less(self, genes: Genes, error: float) -> bool:
        """Whether a structure has less error, beyond rounding."""
        return self._error(genes) < error - TINY_GAIN * abs(error)


def _best_ratio(rise: Errors, saved: Errors) -> int:
    """The row with the least rise per saving; if nothing saves, the row with the least rise."""
    if not (saved > 0).any():
        return int(np.argmin(rise))
    ratio = np.where(saved > 0, rise / np.where(saved > 0, saved, 1.0), np.inf)
    return int(np.argmin(ratio))
