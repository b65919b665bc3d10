"""Calibration: what whole structures took, held against what was predicted of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aacp.correlation import spearman
from aacp.cost.curves import non_negative

Values = NDArray[np.float64]

TOLERATED = 2.0  # median deviations: beyond it, a measurement counts the less the further off it is
SHARED, LOCAL = 0.1, 0.1  # deviations that all structures, and neighbours, are wrong by in the same direction
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
