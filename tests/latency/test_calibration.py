"""Robust lines, and the reported error of predictions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from aacp.latency.calibration import Correction, PredictionError, Trend, robust_line


def test_a_line_is_found_in_spite_of_outliers() -> None:
    sums = np.linspace(1e-3, 5e-3, 40)
    seconds = 0.7 * sums + 2e-4
    seconds[[3, 17, 30]] *= 4  # somebody else was busy
    slope, constant = robust_line(sums, seconds)
    assert slope == pytest.approx(0.7, rel=0.05)
    assert constant == pytest.approx(2e-4, rel=0.1)


def test_neither_slope_nor_constant_is_negative() -> None:
    sums = np.linspace(1.0, 2.0, 10)
    assert robust_line(sums, 3 * sums - 2)[1] == 0
    assert robust_line(sums, 5 - sums)[0] == pytest.approx(0, abs=1e-6)


def test_the_error_is_relative_and_the_order_counts() -> None:
    error = PredictionError.of(np.array([1.1, 2.0, 2.7]), np.array([1.0, 2.0, 3.0]), 0.01)
    assert (error.structures, error.median, error.highest) == (3, pytest.approx(0.1), pytest.approx(0.1))
    assert error.rank_correlation == pytest.approx(1)
    assert PredictionError.of(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0]), 0.01).rank_correlation == -1
    assert np.isnan(PredictionError.of(np.zeros(0), np.zeros(0), 0.01).median)


def structures(count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(2, 65, (count, 12))


def test_what_wholes_take_beside_their_pieces_is_found_group_by_group() -> None:
    rows, others, noise = structures(48, 0), structures(200, 1), np.random.default_rng(2).normal(0, 0.01, 48)

    def wrong(
        some: NDArray[np.int64],
    ) -> NDArray[np.float64]:
        return 0.04 * np.log2(some[:, 3] / 16) - 0.02 * np.log2(some[:, 8] / 16) + 0.01

    trend = Trend.fit(rows, wrong(rows) + noise)
    assert np.std(np.log(trend(others)) - wrong(others)) < 0.3 * np.std(wrong(others))


def test_noise_alone_is_no_trend() -> None:
    trend = Trend.fit(structures(48, 0), np.random.default_rng(2).normal(0, 0.03, 48))
    assert np.std(np.log(trend(structures(200, 1)))) < 0.01


def test_without_later_measurements_nothing_is_corrected() -> None:
    none = Correction.of(np.zeros((0, 3), dtype=np.int64), np.zeros(0), 0.01)
    assert none(np.array([[1, 2, 3], [4, 5, 6]])).tolist() == [1, 1]
