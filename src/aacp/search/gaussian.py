"""GaussianProcess: a model of the score over widths with an additive and a joint part.

Damage from pruning is mostly a sum over groups, which few observations determine; the joint part couples groups.
The kernel is s2 [rho mean_i exp(-dw_i^2 / 2 la^2) + (1 - rho) exp(-|dw|^2 / 2 L lf^2)] + noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

NODES = (
    1 - np.cos(np.pi * (np.arange(10) + 0.5) / 10)
) / 2  # widths in [0, 1] at which the additive kernel is tabulated
LENGTHS = tuple(product((0.25, 0.7), (0.2, 0.5), (0.9, 0.5, 0.1)))  # candidates for (la, lf, rho)
VARIANCES = tuple(product((1.0, 5.0), (0.01, 0.06, 0.3)))  # candidates for (s2, noise)


@dataclass(frozen=True)
class Kernel:
    """The hyper-parameters of the kernel; comments give their symbols in the formula above."""

    additive_length: float  # la
    joint_length: float  # lf
    additive_share: float  # rho
    signal: float  # s2
    noise: float


class Inputs(NamedTuple):
    """Structures as the kernel needs them: rows of width fractions, and the features of its additive part."""

    widths: Matrix
    features: Matrix


class GaussianProcess:
    """A posterior over scores, given observed structures (one row of width fractions each) and their scores."""

    def __init__(self, widths: Matrix, scores: Matrix, kernel: Kernel | None = None) -> None:
        self._mean, self._scale = float(scores.mean()), float(scores.std()) or 1.0
        targets = (scores - self._mean) / self._scale
        self.kernel = kernel or most_likely(widths, targets)
        self._observed = self._inputs(widths)
        covariance = self._covariance(self._observed, self._observed)
        covariance[np.diag_indices_from(covariance)] += self.kernel.noise
        self._inverse = np.linalg.inv(covariance)
        self._weights = self._inverse @ targets
        self._surprise = float(targets @ self._weights)
        self.fitted = scores - self._scale * self.kernel.noise * self._weights  # posterior means of the observations

    @property
    def evidence(self) -> float:
        """The log marginal likelihood of the scores."""
        spread = 2 * math.log(self._scale) + math.log(2 * math.pi)
        return 0.5 * float(np.linalg.slogdet(self._inverse)[1] - self._surprise - len(self._weights) * spread)

    def predict(self, widths: Matrix, awaited: Matrix | None = None) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation of the noise-free score of each row.

        Args:
            widths: the rows.
            awaited: rows whose scores are not known yet. The deviations are those after they are known, which does not
                depend on what they will be.
        """
        rows = self._inputs(widths)
        across = self._covariance(rows, self._observed)
        solved = across @ self._inverse
        variance = self.kernel.signal - (solved * across).sum(axis=1)
        if awaited is not None and len(awaited):
            others = self._inputs(awaited)
            known = self._covariance(others, self._observed)
            joint = self._covariance(rows, others) - solved @ known.T
            own = self._covariance(others, others) - known @ self._inverse @ known.T
            own[np.diag_indices_from(own)] += self.kernel.noise
            variance -= (joint @ np.linalg.inv(own) * joint).sum(axis=1)
        mean = self._mean + self._scale * (across @ self._weights)
        return mean, self._scale * np.sqrt(np.maximum(variance, 1e-12))

    def _inputs(self, widths: Matrix) -> Inputs:
        return Inputs(widths, _features(widths, self.kernel.additive_length))

    def _covariance(self, first: Inputs, second: Inputs) -> Matrix:
        """The covariance of noise-free scores, of each row of `first` with each of `second`."""
        kernel = self.kernel
        joint = np.exp(_distances(first.widths, second.widths) / (-2 * kernel.joint_length**2))
        additive = first.features @ second.features.T
        mixed: Matrix = kernel.additive_share * additive + (1 - kernel.additive_share) * joint
        return kernel.signal * mixed


def most_likely(widths: Matrix, targets: Matrix) -> Kernel:
    """The kernel of the grid with the largest marginal likelihood of standardised targets."""
    distances = _distances(widths, widths)
    best, most = None, -np.inf
    for additive_length, joint_length, share in LENGTHS:
        features = _features(widths, additive_length)
        joint = np.exp(distances / (-2 * joint_length**2))
        values, vectors = np.linalg.eigh(share * (features @ features.T) + (1 - share) * joint)
        projected = (vectors.T @ targets) ** 2
        for signal, noise in VARIANCES:
            spectrum = signal * np.maximum(values, 0) + noise
            likelihood = -0.5 * float((projected / spectrum + np.log(spectrum)).sum())
            if likelihood > most:
                best, most = Kernel(additive_length, joint_length, share, signal, noise), likelihood
    assert best is not None
    return best


def _features(widths: Matrix, length: float) -> Matrix:
    """Feature vectors whose inner products are the additive kernel: mean over groups of exp(-dw^2 / 2 length^2)."""
    values, vectors = np.linalg.eigh(_bumps(NODES, length))
    kept = values > 1e-9 * values[-1]
    root = vectors[:, kept] / np.sqrt(values[kept])
    features: Matrix = _bumps(widths.ravel(), length) @ root
    return np.asarray(features.reshape(len(widths), widths.shape[1] * root.shape[1]) / np.sqrt(widths.shape[1]))


def _bumps(points: Matrix, length: float) -> Matrix:
    return np.exp((points[:, None] - NODES) ** 2 / (-2 * length**2))


def _distances(first: Matrix, second: Matrix) -> Matrix:
    """Mean squared distance over groups, of each row of `first` to each of `second`."""
    squares = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1) - 2 * first @ second.T
    return np.asarray(np.maximum(squares, 0) / first.shape[1])
