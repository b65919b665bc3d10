"""Least squares: weights for the columns that are there, close to the given ones where the data does not decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

# Ridges to choose from, as shares of the mean square of the columns.
RIDGES = (1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 3e-2, 1e-1, 3e-1)
HELD_OUT = 0.25  # share of the rows, those of the last images, on which ridges are compared

# What outputs of shape (groups, rows, outputs) lack to reach their goal.
Missing: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, eq=False)
class Weights:
    """The weights of a product for the columns that are there, (groups, columns, outputs), and what it adds."""

    matrix: torch.Tensor
    constant: torch.Tensor  # (groups, 1, outputs)


def fitted(columns: torch.Tensor, start: Weights, missing: Sequence[Missing], free_constant: bool) -> Weights:
    """The weights with which a product misses its goal least, in double precision.

    Every step solves a ridge regression for what is missing, with the ridge around the weights at the start. One step
    is enough for goals that are one value for each row; intervals need several, but each brings them nearer.

    Args:
        columns: what the product reads, (groups, rows, columns).
        start: its weights now.
        missing: for each step, what outputs lack to reach the goal.
        free_constant: whether the constant may change.
    """
    problem = _Problem(columns.double(), free_constant)
    matrix = start.matrix.double()
    constant = start.constant.double() + problem.mean @ matrix  # what it adds to the product of the centred columns
    ridge = problem.best_ridge(missing[0](problem.columns @ matrix + constant))
    factor = _factor(problem.gram, ridge)
    pull = _added(problem.gram, ridge)
    first = matrix
    for lack in missing:
        lacking = lack(problem.columns @ matrix + constant)
        if free_constant:
            shift = lacking.mean(1, keepdim=True)
            constant = constant + shift
            lacking = lacking - shift
        slope = problem.columns.transpose(1, 2) @ lacking - pull * (matrix - first)
        matrix = matrix + torch.cholesky_solve(slope, factor)
    return Weights(matrix, constant - problem.mean @ matrix)


class _Problem:
    """Columns, centred if a constant is free, and their Gram matrix."""

    def __init__(self, columns: torch.Tensor, is_centred: bool) -> None:
        self.mean = columns.mean(1, keepdim=True) if is_centred else torch.zeros_like(columns[:, :1])
        self.columns = columns - self.mean
        self.gram = self.columns.transpose(1, 2) @ self.columns
        self._is_centred = is_centred

    def best_ridge(self, lacking: torch.Tensor) -> float:
        """The ridge whose fit to the other images predicts best what the last images lack."""
        count = self.columns.shape[1]
        cut = count - int(HELD_OUT * count)
        if cut == count:
            return RIDGES[-1]
        if self._is_centred:
            lacking = lacking - lacking[:, :cut].mean(1, keepdim=True)
        held = self.columns[:, cut:].transpose(1, 2)
        held_gram = held @ self.columns[:, cut:]
        held_product = held @ lacking[:, cut:]
        product = self.columns[:, :cut].transpose(1, 2) @ lacking[:, :cut]

        def error(ridge: float) -> float:
            change = torch.cholesky_solve(product, _factor(self.gram - held_gram, ridge))
            return float((change * (held_gram @ change - 2 * held_product)).sum())

        return min(RIDGES, key=error)


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
