"""Rank correlations against their definitions, pair by pair."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

import aacp
from aacp.search.correlation import kendall, spearman


def rank(values: list[float], value: float) -> float:
    """How many are smaller, and half of those that are equal."""
    return sum(other < value for other in values) + (sum(other == value for other in values) - 1) / 2


def spearman_by_hand(first: list[float], second: list[float]) -> float:
    one, other = ([rank(values, value) for value in values] for values in (first, second))
    mean = (len(one) - 1) / 2
    covariance = sum((a - mean) * (b - mean) for a, b in zip(one, other, strict=True))
    spreads = [math.sqrt(sum((value - mean) ** 2 for value in values)) for values in (one, other)]
    return covariance / (spreads[0] * spreads[1])


def kendall_by_hand(first: list[float], second: list[float]) -> float:
    agree = differ = tied_first = tied_second = 0
    for i, j in combinations(range(len(first)), 2):
        a, b = first[i] - first[j], second[i] - second[j]
        agree += a * b > 0
        differ += a * b < 0
        tied_first += a == 0
        tied_second += b == 0
    pairs = len(first) * (len(first) - 1) / 2
    return (agree - differ) / math.sqrt((pairs - tied_first) * (pairs - tied_second))


@pytest.mark.parametrize("levels", [3, 8, 10**6], ids=["many ties", "some ties", "no ties"])
@pytest.mark.parametrize("seed", range(4))
def test_correlations_equal_their_definitions(levels: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    first, second = generator.integers(0, levels, (2, 11)).astype(float).tolist()
    assert spearman(first, second) == pytest.approx(spearman_by_hand(first, second))
    assert kendall(first, second) == pytest.approx(kendall_by_hand(first, second))


def test_known_values() -> None:
    # Ranks differ by 0, 1, 1, 1, 1: 1 - 6 * 4 / (5 * 24); two of ten pairs are reversed.
    first, second = [1, 2, 3, 4, 5], [1, 3, 2, 5, 4]
    assert spearman(first, second) == pytest.approx(0.8)
    assert kendall(first, second) == pytest.approx(0.6)


@pytest.mark.parametrize("correlation", [spearman, kendall])
def test_only_the_order_counts(correlation) -> None:
    first = [0.1, 0.7, 0.3, 0.9]
    assert correlation(first, [math.exp(9 * value) for value in first]) == pytest.approx(1)
    assert correlation(first, [-value for value in first]) == pytest.approx(-1)
    assert correlation(first, [0.0, 1.0, 0.5, math.inf]) == pytest.approx(1)


@pytest.mark.parametrize("correlation", [spearman, kendall])
def test_a_constant_list_has_no_order(correlation) -> None:
    assert math.isnan(correlation([1, 1, 1], [1, 2, 3]))


@pytest.mark.parametrize("correlation", [spearman, kendall])
@pytest.mark.parametrize(
    ("first", "second"),
    [([1, 2], [1, 2, 3]), ([1], [1]), ([], []), ([[1, 2]], [[1, 2]]), ([1, math.nan, 3], [1, 2, 3])],
    ids=["lengths", "one", "none", "matrix", "nan"],
)
def test_what_cannot_be_ranked_is_rejected(correlation, first, second) -> None:
    with pytest.raises(aacp.InvalidOption):
        correlation(first, second)
