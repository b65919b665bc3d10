"""Curves through scattered measurements; coefficients that cannot be negative."""

from __future__ import annotations

import numpy as np
import pytest

from aacp.latency.curves import Curve, non_negative

AXIS = np.arange(4, 65, 4)


def test_a_curve_of_no_width_is_the_usual_value() -> None:
    curve = Curve.fit(np.zeros((5, 0), dtype=np.int64), np.zeros(5, dtype=np.int64), np.full(5, 3e-4), [])
    assert float(curve.seconds) * curve.places[0] == pytest.approx(3e-4, rel=0.01)


def test_steps_of_sixteen_are_kept() -> None:
    sizes = np.random.default_rng(0).choice(AXIS, size=(40, 1))
    seconds = 1e-5 * np.ceil(sizes[:, 0] / 16)
    curve = Curve.fit(sizes, np.zeros(40, dtype=np.int64), seconds, [AXIS])
    assert curve.seconds * curve.places[0] == pytest.approx(1e-5 * np.ceil(AXIS / 16), rel=0.05)


def test_places_differ_by_a_factor() -> None:
    generator = np.random.default_rng(0)
    sizes, places = generator.choice(AXIS, size=(60, 2)), np.repeat([0, 1], 30)
    seconds = 1e-8 * sizes.prod(axis=1) * np.where(places, 1.1, 1.0)
    curve = Curve.fit(sizes, places, seconds, [AXIS, AXIS])
    assert curve.places[1] / curve.places[0] == pytest.approx(1.1, rel=0.02)


def test_least_squares_without_negative_coefficients() -> None:
    generator = np.random.default_rng(0)
    design = generator.random((50, 3))
    assert non_negative(design, design @ [1.0, 0.0, 2.0]) == pytest.approx([1, 0, 2], abs=1e-9)
    assert non_negative(design, -design.sum(axis=1)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("unit", [1e-12, 1e12])
def test_coefficients_scale_with_the_unit_of_the_target(unit: float) -> None:
    generator = np.random.default_rng(0)
    for _ in range(100):
        design = generator.random((30, 8))
        target = design @ np.maximum(generator.normal(size=8), 0) + 0.3 * generator.normal(size=30)
        assert non_negative(design, unit * target) / unit == pytest.approx(non_negative(design, target), abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_gained_by_another_coefficient_that_is_not_negative(seed: int) -> None:
    """The conditions of Karush, Kuhn and Tucker, which only the best coefficients meet, for columns that are alike."""
    generator = np.random.default_rng(seed)
    widths = generator.choice(AXIS, size=(60, 2)).astype(float)
    rounded = [np.ceil(widths / multiple) * multiple for multiple in (1, 8, 16, 32)]
    design = np.hstack([np.ones((60, 1)), *rounded, *(each.prod(axis=1, keepdims=True) for each in rounded)])
    target = design @ np.maximum(generator.normal(size=design.shape[1]), 0) * generator.lognormal(0, 0.1, size=60)
    found = non_negative(design, target)
    gradient = design.T @ (target - design @ found) / np.linalg.norm(design, axis=0) / np.linalg.norm(target)
    assert found.min() >= 0
    assert gradient.max() < 1e-8
    assert np.abs(gradient[found > 0]).max() < 1e-8
    assert 0 < (found > 0).sum() < len(found)
