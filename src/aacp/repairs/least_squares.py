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
        change = torch.cholesky_solve(slope, factor)
        matrix = matrix + change
        constant = constant - problem.offset @ change  # so that the mean of the outputs stays
    return Weights(matrix, constant - problem.mean @ matrix)


class _Problem:
    """Columns, centred by the rows that ridges are fitted on if a constant is free, and the Gram matrix of all rows.

    Values for each row are in single precision. So are the products of a step, because the next step corrects their
    rounding. Nothing corrects the choice of the ridge, so it uses sums in double precision. All systems of equations
    are solved in double precision.
    """

    def __init__(self, columns: torch.Tensor, is_centred: bool) -> None:
        self._is_centred = is_centred
        self._count = columns.shape[1]
        self._cut = self._count - int(HELD_OUT * self._count)  # rows from here on are held out
        mean = self._mean(columns[:, : self._cut]).float()
        self.mean = mean.double()
        self._columns = columns.float() - mean
        self.offset = self._mean(self._columns)  # the mean of all rows after that
        fitted_on, held_out = self._columns.tensor_split([self._cut], dim=1)
        self._gram = _summed(fitted_on, fitted_on)
        self.gram = self._gram + _summed(held_out, held_out) - self._count * self.offset.transpose(1, 2) @ self.offset

    def _mean(self, values: torch.Tensor) -> torch.Tensor:
        """The mean of all rows; zero if the constant is not free."""
        mean = values.mean(1, keepdim=True).double()
        return mean if self._is_centred else torch.zeros_like(mean)

    def outputs(self, matrix: torch.Tensor, constant: torch.Tensor, first: int = 0) -> torch.Tensor:
        """What weights for the centred columns compute in each row, or from the row `first` on."""
        return self._columns[:, first:] @ matrix.float() + constant.float()

    def products(self, values: torch.Tensor) -> torch.Tensor:
        """The products of the columns with values of each row, summed over rows: (groups, columns, outputs)."""
        return (self._columns.transpose(1, 2) @ values).double()

    def best_ridge(self, lacking: torch.Tensor) -> float:
        """The ridge whose fit to the other images predicts best what the last images lack.

        The fit knows only the means of these others. With those of all images it would miss some of what the columns
        explain exactly, and a large ridge might happen to make up for it.
        """
        if self._cut == self._count:
            return RIDGES[-1]
        fitted_on, held_out = lacking.tensor_split([self._cut], dim=1)
        constant = self._mean(fitted_on)
        product = _summed(self._columns[:, : self._cut], fitted_on - constant.float())

        @cache
        def error(place: int) -> float:
            change = torch.cholesky_solve(product, _factor(self._gram, RIDGES[place]))
            # The squares of what is left resolve errors that a difference of sums, such as that of the normal
            # equations, loses in rounding.
            return float((held_out - self.outputs(change, constant, self._cut)).square().sum())

        place = len(RIDGES) // 2
        while True:  # as a rule, the error first falls and then rises with the ridge
            near = [other for other in (place - 1, place, place + 1) if 0 <= other < len(RIDGES)]
            best = min(near, key=error)
            if best == place:
                return RIDGES[place]
            place = best


def _summed(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The products of two values of each row, summed over rows, by stretches that fit into memory in double precision.

    Args:
        left: (groups, rows, columns).
        right: (groups, rows, outputs).
    """
    total = torch.zeros(len(left), left.shape[2], right.shape[2], dtype=torch.float64, device=left.device)
    for one, other in zip(torch.split(left, STRETCH, dim=1), torch.split(right, STRETCH, dim=1), strict=True):
        wide = one.double()
        total += wide.transpose(1, 2) @ (wide if left is right else other.double())
    return total


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
