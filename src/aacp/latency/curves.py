"""Curve: seconds as a function of a few widths on a grid, fitted to scattered measurements.

The time of a kernel is a step function: a width just above a multiple of 16 may take as long as the next multiple, and
a width that 4 does not divide may take twice as long. The fit is the product of two factors: a polynomial of the widths
and of the widths rounded up, with coefficients of at least 0, and the exponential of a Gaussian process for the rest.
In that process two widths are correlated if they are near, and more so if the same power of two divides them. Pieces of
one kind share a curve; each place in the network has a factor of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Sizes = NDArray[np.int64]

ROUNDINGS = (1, 8, 16, 32)  # the polynomial contains the widths rounded up to these multiples
LARGEST_MULTIPLE = 32  # the largest power of two whose multiples are distinguished

# The prior of the Gaussian process. Its numbers were chosen by hand and not fitted to data; the accuracy of tables that
# use them is measured by benchmarks/latency_prediction.py. Standard deviations are of the logarithm of seconds: 0.1
# means about 10 %.
SMOOTH_DEVIATION = 0.1  # deviation of the smooth part, which is similar for near widths
SMOOTH_LENGTH = 0.7  # correlation length of the smooth part, in octaves of width
STEP_DEVIATIONS = (0.05, 0.2, 0.6)  # candidates for the deviation of the part that depends on dividing powers of two
STEP_LENGTH = 2.0  # correlation length of the part that depends on dividing powers of two, in octaves of width
PLACE_DEVIATION = 0.05  # deviation of the separate factor of each place in the network
SMALLEST_GAIN = 1e-9  # scaled coefficients and gradients below this share of the target are rounding errors
NOISES = (0.01, 0.03, 0.1)  # candidates for the noise of a measurement; the most likely pair of candidates is used


@dataclass(frozen=True, eq=False)
class Curve:
    """Seconds on a grid of widths, and a factor for each place; values between grid points are interpolated."""

    axes: tuple[Sizes, ...]  # the grid points of each width
    seconds: Values  # one dimension for each width
    places: Values  # the factor of each place

    @classmethod
    def fit(cls, sizes: Sizes, places: Sizes, seconds: Values, axes: Sequence[Sizes]) -> Curve:
        """Fit a curve to measurements.

        Args:
            sizes: the widths of each measurement, one row each.
            places: which piece each measurement is of.
            seconds: the seconds of each measurement.
            axes: the grid points of each width.
        """
        coefficients = non_negative(_features(sizes) / seconds[:, None], np.ones(len(seconds)))
        residuals = np.log(seconds / (_features(sizes) @ coefficients))
        process = _most_likely_process(sizes, places, residuals)
        grid = np.array(list(product(*axes)), dtype=np.int64)  # one empty row if there are no axes
        values = (_features(grid) @ coefficients) * np.exp(process.at(grid))
        shape = tuple(len(axis) for axis in axes)
        return cls(tuple(axes), values.reshape(shape), np.exp(process.of_places(int(places.max()) + 1)))


def _features(sizes: Sizes) -> Values:
    """Return the terms of the polynomial: 1, every width, and every product of two widths, for each rounding."""
    columns = [np.ones(len(sizes))]
    for multiple in ROUNDINGS:
        widths = (-(-sizes // multiple) * multiple).astype(np.float64)
        columns.extend(widths.T)
        count = widths.shape[1]
        columns.extend(widths[:, i] * widths[:, j] for i in range(count) for j in range(i, count))
    return np.stack(columns, axis=1)


# -- the residuals of the polynomial ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Process:
    """A Gaussian process over widths and places, conditioned on residuals."""

    sizes: Sizes
    places: Sizes
    step_deviation: float
    weights: Values
    log_likelihood: float

    @classmethod
    def fit(cls, sizes: Sizes, places: Sizes, residuals: Values, step_deviation: float, noise: float) -> _Process:
        """Condition the process on residuals.

        Args:
            sizes: the widths of each measurement, one row each.
            places: which piece each measurement is of.
            residuals: the logarithms of measured over fitted seconds.
            step_deviation: the prior standard deviation of the part that depends on the dividing power of two.
            noise: the standard deviation of a measurement.
        """
        same_place = places[:, None] == places
        covariance = _covariance(sizes, sizes, step_deviation) + PLACE_DEVIATION**2 * same_place
        covariance += noise**2 * np.eye(len(residuals))
        weights, log_likelihood = conditioned(covariance, residuals)
        return cls(sizes, places, step_deviation, weights, log_likelihood)

    def at(self, sizes: Sizes) -> Values:
        """Return the mean residual at other widths, without the factor of a place."""
        return np.asarray(_covariance(sizes, self.sizes, self.step_deviation) @ self.weights)

    def of_places(self, count: int) -> Values:
        """Return the mean residual that each place adds."""
        sums = np.bincount(self.places, self.weights, minlength=count)
        return np.asarray(PLACE_DEVIATION**2 * sums, dtype=np.float64)


def _most_likely_process(sizes: Sizes, places: Sizes, residuals: Values) -> _Process:
    candidates = product(STEP_DEVIATIONS, NOISES)
    found = [_Process.fit(sizes, places, residuals, deviation, noise) for deviation, noise in candidates]
    return max(found, key=lambda process: process.log_likelihood)


def _covariance(some: Sizes, others: Sizes, step_deviation: float) -> Values:
    """Return the prior covariance of the residuals at some widths with those at others."""
    shape = (len(some), len(others))
    near = np.ones(shape)
    far = np.ones(shape)
    all_same = np.ones(shape)  # whether every width has the same dividing power of two in both
    share_same = np.zeros(shape)  # the share of the widths for which that is so
    for one, other in zip(some.T, others.T, strict=True):
        octaves = np.log2(np.maximum(one, 1))[:, None] - np.log2(np.maximum(other, 1))
        same = np.gcd(one, LARGEST_MULTIPLE)[:, None] == np.gcd(other, LARGEST_MULTIPLE)
        near = near * np.exp(-0.5 * (octaves / SMOOTH_LENGTH) ** 2)
        far = far * np.exp(-0.5 * (octaves / STEP_LENGTH) ** 2)
        all_same = all_same * same
        share_same = share_same + same / max(1, some.shape[1])
    return np.asarray(SMOOTH_DEVIATION**2 * near + step_deviation**2 * far * (all_same + share_same) / 2)


def conditioned(covariance: Values, residuals: Values) -> tuple[Values, float]:
    """Return the weight of each residual of a Gaussian process, and the log likelihood of all up to a constant.

    Args:
        covariance: the prior covariance of the residuals, with their noise.
        residuals: the logarithms of measured over fitted seconds.
    """
    lower = np.linalg.cholesky(covariance)
    white = np.linalg.solve(lower, residuals)
    log_likelihood = -0.5 * float(white @ white) - float(np.log(np.diag(lower)).sum())
    return np.asarray(np.linalg.solve(lower.T, white)), log_likelihood


def non_negative(design: Values, target: Values) -> Values:
    """Solve least squares with coefficients of at least 0, by the active-set method of Lawson and Hanson.

    One coefficient after the other is freed, and those that would become negative are fixed at 0 again.
    """
    scale = np.maximum(np.linalg.norm(design, axis=0), 1e-300)
    scaled = design / scale
    gram = scaled.T @ scaled
    correlation = scaled.T @ target
    smallest = SMALLEST_GAIN * np.linalg.norm(target)
    found = np.zeros(len(correlation))
    free = np.zeros(len(found), dtype=bool)
    for _ in range(3 * len(found)):  # rounding could free and fix the same coefficient for ever
        gradient = np.where(free, 0.0, correlation - gram @ found)
        if gradient.max() <= smallest:
            break
        free[gradient.argmax()] = True
        better = _unconstrained(gram, correlation, free)
        while (negative := free & (better <= 0)).any():
            falls = np.maximum(found[negative] - better[negative], 1e-300)
            found = found + np.min(found[negative] / falls) * (better - found)
            free &= found > smallest
            better = _unconstrained(gram, correlation, free)
        found = better
    return np.asarray(found / scale)


def _unconstrained(gram: Values, correlation: Values, free: NDArray[np.bool_]) -> Values:
    """Return the solution of least squares in which all coefficients but the free ones are 0."""
    result = np.zeros(len(correlation))
    result[free] = np.linalg.lstsq(gram[np.ix_(free, free)], correlation[free], rcond=None)[0]
    return result
