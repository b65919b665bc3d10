"""Least squares: weights for the columns that are there, close to the given ones where the data does not decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import torch

# Ridges to choose from, as shares of the mean square of the columns.
RIDGES = (1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
STRETCH = 8192  # rows that are converted to double precision at once
HELD_OUT = 0.25  # share of the rows, those of the last images, on which ridges are compared; images are in random order

# What outputs of shape (groups, rows, outputs) lack to reach their goal.
Missing: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of a product for the columns that are there, (groups, columns, outputs), and what it adds."""

    matrix: torch.Tensor
    constant: torch.Tensor  # (groups, 1, outputs)


def fitted(columns: torch.Tensor, start: Weights, missing: Sequence[Missing], free_constant: bool) -> Weights:
    """The weights with which a product misses its goal least.

    Every step solves a ridge regression for what is missing, with the ridge around the weights at the start. Goals
    that are one value for each row need one step, and a second against rounding; intervals need several.

    Args:
        columns: what the product reads, (groups, rows, columns).
        start: its weights now.
        missing: for each step, what outputs lack to reach the goal.
        free_constant: whether the constant may change.
    """
    problem = _Problem(columns, free_constant)
    matrix = start.matrix.double()
    constant = start.constant.double() + problem.mean @ matrix  # what it adds to the product of the centred columns
    ridge = problem.best_ridge(missing[0](problem.outputs(matrix, constant)))
    factor = _factor(problem.gram, ridge)
    pull = _added(problem.gram, ridge)
    for lack in missing:
        lacking = lack(problem.outputs(matrix, constant))
        if free_constant:
            shift = lacking.mean(1, keepdim=True)
            constant = constant + shift
            lacking = lacking - shift
        slope = problem.products(lacking) - pull * (matrix - start.matrix)
        matrix = matrix + torch.cholesky_solve(slope, factor)
    return Weights(matrix, constant - problem.mean @ matrix)


class _Problem:
    """Columns, centred if a constant is free, and their Gram matrix.

    Values for each row are in single precision, which is enough for what is missing; everything that is summed over
    rows and solved is in double precision.
    """

    def __init__(self, columns: torch.Tensor, is_centred: bool) -> None:
        mean = columns.mean(1, keepdim=True)
        self.mean = mean.double() if is_centred else torch.zeros_like(mean, dtype=torch.float64)
        self._columns = columns.float() - self.mean.float()
        self._is_centred = is_centred
        self._count = columns.shape[1]
        self._cut = self._count - int(HELD_OUT * self._count)  # rows from here on are held out
        self._held = self._gram(slice(self._cut, None))
        self.gram = self._gram(slice(0, self._cut)) + self._held

    def _gram(self, part: slice) -> torch.Tensor:
        """The Gram matrix of some rows, summed over stretches that fit into memory in double precision."""
        groups, _, width = self._columns.shape
        total = torch.zeros(groups, width, width, dtype=torch.float64, device=self._columns.device)
        for stretch in torch.split(self._columns[:, part], STRETCH, dim=1):
            wide = stretch.double()
            total += wide.transpose(1, 2) @ wide
        return total

    def outputs(self, matrix: torch.Tensor, constant: torch.Tensor) -> torch.Tensor:
        """What weights for the centred columns compute in each row."""
        return self._columns @ matrix.float() + constant.float()

    def products(self, values: torch.Tensor, part: slice = slice(None)) -> torch.Tensor:
        """The products of the columns with values of each row, summed over rows: (groups, columns, outputs)."""
        return (self._columns[:, part].transpose(1, 2) @ values[:, part]).double()

    def best_ridge(self, lacking: torch.Tensor) -> float:
        """The ridge whose fit to the other images predicts best what the last images lack."""
        if self._cut == self._count:
            return RIDGES[-1]
        if self._is_centred:
            lacking = lacking - lacking[:, : self._cut].mean(1, keepdim=True)
        product = self.products(lacking, slice(0, self._cut))
        held_product = self.products(lacking, slice(self._cut, None))
        gram = self.gram - self._held

        @cache
        def error(place: int) -> float:
            change = torch.cholesky_solve(product, _factor(gram, RIDGES[place]))
            return float((change * (self._held @ change - 2 * held_product)).sum())

        place = len(RIDGES) // 2
        while True:  # as a rule, the error first falls and then rises with the ridge
            near = [other for other in (place - 1, place, place + 1) if 0 <= other < len(RIDGES)]
            best = min(near, key=error)
            if best == place:
                return RIDGES[place]
            place = best


def _added(gram: torch.Tensor, ridge: float) -> torch.Tensor:
    """What a ridge adds to the diagonal of the Gram matrix of each group."""
    size = torch.diagonal(gram, dim1=1, dim2=2).mean(1)
    # If all columns are constant, any ridge leaves the weights as they are.
    return ridge * torch.where(size > 0, size, 1.0)[:, None, None]


def _factor(gram: torch.Tensor, ridge: float) -> torch.Tensor:
    """The Cholesky factor of the Gram matrix of each group with a ridge on its diagonal."""
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
    factor: torch.Tensor = torch.linalg.cholesky(gram + _added(gram, ridge) * identity)
    return factor
