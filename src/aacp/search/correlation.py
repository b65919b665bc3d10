"""Rank correlations of two lists of scores: 1 if they rank alike, -1 if they rank in opposite order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from aacp.errors import InvalidOption


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's rho; equal scores share the mean of their ranks. NaN if one list is constant."""
    one, other = (_ranks(values) for values in _checked(first, second))
    spread = float(np.std(one) * np.std(other))
    return float(np.mean((one - one.mean()) * (other - other.mean()))) / spread if spread else math.nan


def kendall(first: Sequence[float], second: Sequence[float]) -> float:
    """Kendall's tau-b: pairs in the same order minus pairs in opposite order, normalised for ties."""
    ranks = [_ranks(values) for values in _checked(first, second)]  # the difference of two infinities is NaN
    one, other = (np.sign(values[:, None] - values[None]) for values in ranks)
    spread = math.sqrt(float((one**2).sum() * (other**2).sum()))
    return float((one * other).sum()) / spread if spread else math.nan


def _checked(first: Sequence[float], second: Sequence[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    one, other = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.shape != other.shape or one.ndim != 1 or len(one) < 2:
        raise InvalidOption(
            f"A rank correlation needs two lists of equal length, at least 2, but got {one.shape} and {other.shape}. "
            "Give two lists of the same length."
        )
    if np.isnan(one).any() or np.isnan(other).any():
        raise InvalidOption("Some of the scores are NaN, which has no rank. Leave them out.")
    return one, other


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[inverse]
