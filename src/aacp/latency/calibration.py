"""Calibration: what whole structures took, held against what was predicted of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aacp.correlation import spearman
from aacp.latency.curves import non_negative

Values = NDArray[np.float64]

TOLERATED = 2.0  # median deviations: beyond it, a measurement counts the less the further off it is
SHARED, LOCAL = 0.1, 0.1  # deviations that all structures, and neighbours, are wrong by in the same direction
SLOPES = (0.0, 0.003, 0.006, 0.01, 0.02, 0.03, 0.05)  # by octave of one group
NOISES = (0.01, 0.02, 0.03, 0.05, 0.08)
SHIFT = 0.02
NEIGHBOURHOOD = 0.25  # octaves of width, root mean square over the groups


def robust_line(predicted: Values, seconds: Values) -> tuple[float, float]:
    """Slope and constant, neither negative, that lead from sums of pieces to wholes; outliers hardly count."""
    design = np.stack([predicted, np.ones(len(predicted))], axis=1) / seconds[:, None]
    weights = np.ones(len(seconds))
    for _ in range(10):
        slope, constant = non_negative(design * weights[:, None], weights)
        off = np.abs(design @ (slope, constant) - 1)
        weights = np.sqrt(np.minimum(1, TOLERATED * max(float(np.median(off)), 1e-9) / np.maximum(off, 1e-12)))
    return float(slope), float(constant)


@dataclass(frozen=True, eq=False)
class Trend:
    """A factor for structures: what wholes take beside their pieces grows or falls with the width of each group.

    Caches, layouts and threads that wait are seen by the whole network alone. How much of it there is, none perhaps,
    and how much is noise, is what makes the measurements likeliest.
    """

    middle: Values  # octaves
    slopes: Values  # of the logarithm, by octave of each group
    shift: float

    @classmethod
    def fit(cls, rows: NDArray[np.int64], wrong: Values) -> Trend:
        """From structures and the logarithms of measured over predicted seconds."""
        octaves = np.log2(rows.astype(np.float64))
        middle = octaves.mean(axis=0)
        apart = octaves - middle
        found = [_likelihood(apart, wrong, slope, noise) for slope in SLOPES for noise in NOISES]
        _, slope, weights = max(found, key=lambda each: each[0])
        return cls(middle, slope**2 * apart.T @ weights, SHIFT**2 * float(weights.sum()))

    def __call__(self, rows: NDArray[np.int64]) -> Values:
        return np.asarray(np.exp(self.shift + (np.log2(rows.astype(np.float64)) - self.middle) @ self.slopes))


def _likelihood(apart: Values, wrong: Values, slope: float, noise: float) -> tuple[float, float, Values]:
    """How likely deviations are if slopes and noise have these deviations; the slope, and what weighs each of them."""
    covariance = slope**2 * apart @ apart.T + SHIFT**2 + noise**2 * np.eye(len(wrong))
    lower = np.linalg.cholesky(covariance)
    white = np.linalg.solve(lower, wrong)
    fit = -0.5 * float(white @ white) - float(np.log(np.diag(lower)).sum())
    return fit, slope, np.asarray(np.linalg.solve(lower.T, white))


@dataclass(frozen=True)
class PredictionError:
    """How far predictions are from measurements: relative errors, and whether the order is right."""

    structures: int
    median: float
    highest: float
    rank_correlation: float
    noise: float  # of the measurements themselves

    @classmethod
    def of(cls, predicted: Values, seconds: Values, noise: float) -> PredictionError:
        if not len(seconds):
            return cls(0, float("nan"), float("nan"), float("nan"), noise)
        off = np.abs(predicted / seconds - 1)
        order = spearman(predicted.tolist(), seconds.tolist()) if len(off) > 1 else float("nan")
        return cls(len(off), float(np.median(off)), float(off.max()), order, noise)

    def __str__(self) -> str:
        return (
            f"on {self.structures} structures it has not seen, {100 * self.median:.1f} % off at the median and "
            f"{100 * self.highest:.1f} % at most, rank correlation {self.rank_correlation:.3f}, where measurements "
            f"are uncertain by {100 * self.noise:.1f} %"
        )


@dataclass(frozen=True, eq=False)
class Correction:
    """A factor for structures, from a few that took longer or shorter than predicted: most for their neighbours."""

    octaves: Values  # of the widths of those few
    weights: Values

    @classmethod
    def of(cls, rows: NDArray[np.int64], wrong: Values, noise: float) -> Correction:
        """From structures and the logarithms of measured over predicted seconds."""
        octaves = np.log2(rows.astype(np.float64))
        covariance = _alike(octaves, octaves) + max(noise, 0.003) ** 2 * np.eye(len(rows))
        return cls(octaves, np.asarray(np.linalg.solve(covariance, wrong), dtype=np.float64))

    def __call__(self, rows: NDArray[np.int64]) -> Values:
        if not len(self.weights):
            return np.ones(len(rows))
        return np.asarray(np.exp(_alike(np.log2(rows.astype(np.float64)), self.octaves) @ self.weights))


def _alike(some: Values, others: Values) -> Values:
    squares = ((some[:, None] - others) ** 2).mean(axis=2)
    return np.asarray(SHARED**2 + LOCAL**2 * np.exp(-0.5 * squares / NEIGHBOURHOOD**2))
