"""Calibration: whole structures as measured, compared with the sum of their pieces as predicted."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from aacp.latency.curves import Sizes, Values, conditioned, non_negative
from aacp.search.correlation import spearman

OUTLIER_DEVIATIONS = 2.0  # residuals above this many times the median residual get less weight in `robust_line`

# The priors below were chosen by hand and not fitted to data; the accuracy of tables that use them is measured by
# benchmarks/latency_prediction.py. They are standard deviations of the logarithm of seconds: 0.1 means about 10 %.
TREND_SLOPES = (0.0, 0.003, 0.006, 0.01, 0.02, 0.03, 0.05)  # candidates for the slope of a group, by octave of width
TREND_NOISES = (0.01, 0.02, 0.03, 0.05, 0.08)  # candidates for the noise; the most likely pair of candidates is used
TREND_OFFSET = 0.02  # deviation of the error that all structures of a table have in common
CORRECTION_SHARED = 0.1  # deviation of the error that later measurements find in all structures alike
CORRECTION_LOCAL = 0.1  # deviation of the error that later measurements find in similar structures
CORRECTION_LENGTH = 0.25  # its correlation length, in octaves of width (root mean square over the groups)
MIN_NOISE = 0.003  # a later measurement is assumed to have at least this uncertainty


def robust_line(predicted: Values, seconds: Values) -> tuple[float, float]:
    """Return a slope and a constant, both at least 0, from sums of pieces to whole structures.

    The fit is reweighted ten times, so that outliers have little influence.
    """
    design = np.stack([predicted, np.ones(len(predicted))], axis=1) / seconds[:, None]
    weights = np.ones(len(seconds))
    for _ in range(10):
        slope, constant = non_negative(design * weights[:, None], weights)
        residuals = np.abs(design @ (slope, constant) - 1)
        tolerated = OUTLIER_DEVIATIONS * max(float(np.median(residuals)), 1e-9)
        weights = np.sqrt(np.minimum(1, tolerated / np.maximum(residuals, 1e-12)))
    return float(slope), float(constant)


@dataclass(frozen=True, eq=False)
class Trend:
    """A factor for structures that grows or falls with the width of each group.

    The time of a whole network also depends on caches, memory layouts and waiting threads, which the sum of its pieces
    does not show. The size of this effect, which may be 0, and the noise are chosen by maximum likelihood.
    """

    centre: Values  # mean width of each group, in octaves
    slopes: Values  # the change of the logarithm of seconds per octave of width, for each group
    offset: float

    @classmethod
    def fit(cls, rows: Sizes, residuals: Values) -> Trend:
        """Fit a trend to structures and the logarithms of measured over predicted seconds."""
        octaves = np.log2(rows.astype(np.float64))
        centre = octaves.mean(axis=0)
        distances = octaves - centre
        found = []
        for slope, noise in product(TREND_SLOPES, TREND_NOISES):
            covariance = slope**2 * distances @ distances.T + TREND_OFFSET**2 + noise**2 * np.eye(len(residuals))
            found.append((*conditioned(covariance, residuals), slope))
        weights, _, slope = max(found, key=lambda candidate: candidate[1])
        return cls(centre, slope**2 * distances.T @ weights, TREND_OFFSET**2 * float(weights.sum()))

    def __call__(self, rows: Sizes) -> Values:
        distances = np.log2(rows.astype(np.float64)) - self.centre
        return np.asarray(np.exp(self.offset + distances @ self.slopes))


@dataclass(frozen=True)
class PredictionError:
    """The error of predictions on measured structures: relative errors, and the rank correlation."""

    structures: int
    median: float  # relative error
    highest: float  # relative error
    rank_correlation: float
    noise: float  # relative uncertainty of the measurements themselves

    @classmethod
    def of(cls, predicted: Values, seconds: Values, noise: float) -> PredictionError:
        if not len(seconds):
            return cls(0, float("nan"), float("nan"), float("nan"), noise)
        errors = np.abs(predicted / seconds - 1)
        correlation = spearman(predicted.tolist(), seconds.tolist()) if len(errors) > 1 else float("nan")
        return cls(len(errors), float(np.median(errors)), float(errors.max()), correlation, noise)

    def __str__(self) -> str:
        return (
            f"on {self.structures} structures it has not seen, {100 * self.median:.1f} % off at the median and "
            f"{100 * self.highest:.1f} % at most, rank correlation {self.rank_correlation:.3f}, where measurements "
            f"are uncertain by {100 * self.noise:.1f} %"
        )


@dataclass(frozen=True, eq=False)
class Correction:
    """A factor for structures from a few later measurements; it is strongest for structures near the measured ones."""

    octaves: Values  # widths of the measured structures
    weights: Values  # one for each measured structure

    @classmethod
    def of(cls, rows: Sizes, residuals: Values, noise: float) -> Correction:
        """Make a correction from structures and the logarithms of measured over predicted seconds."""
        octaves = np.log2(rows.astype(np.float64))
        covariance = _covariance(octaves, octaves) + max(noise, MIN_NOISE) ** 2 * np.eye(len(rows))
        return cls(octaves, np.asarray(np.linalg.solve(covariance, residuals), dtype=np.float64))

    def __call__(self, rows: Sizes) -> Values:
        if not len(self.weights):
            return np.ones(len(rows))
        return np.asarray(np.exp(_covariance(np.log2(rows.astype(np.float64)), self.octaves) @ self.weights))


def _covariance(some: Values, others: Values) -> Values:
    """Return the prior covariance of the errors of some structures with those of others."""
    squares = ((some[:, None] - others) ** 2).mean(axis=2)
    local = np.exp(-0.5 * squares / CORRECTION_LENGTH**2)
    return np.asarray(CORRECTION_SHARED**2 + CORRECTION_LOCAL**2 * local)
