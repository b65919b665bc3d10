"""RidgeRegression: a model of the score, linear in a few functions of each width; cheap for many groups."""

from __future__ import annotations

import math

import numpy as np

from aacp.search.gaussian import Matrix

STRENGTHS = tuple(10.0**power for power in range(-3, 4))  # candidates for the prior precision, relative to the noise


class RidgeRegression:
    """A posterior over scores from w, w^2, log w and sqrt w of every group."""

    def __init__(self, widths: Matrix, scores: Matrix) -> None:
        raw = _functions(widths)
        self._centre, self._spread = raw.mean(axis=0), raw.std(axis=0) + 1e-12
        self._mean = float(scores.mean())
        features, targets = (raw - self._centre) / self._spread, scores - self._mean
        values, vectors = np.linalg.eigh(features.T @ features)
        values = np.maximum(values, 0)
        projected = vectors.T @ (features.T @ targets)
        fit = _most_likely(values, projected, float(targets @ targets), len(targets))
        self.evidence, strength, self._noise = fit  # evidence is the log marginal likelihood of the scores
        self._root = vectors / np.sqrt(values + strength)
        self._weights = vectors @ (projected / (values + strength))
        self.fitted = self._mean + features @ self._weights  # posterior means of the observations

    def predict(self, widths: Matrix, awaited: Matrix | None = None) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation of the noise-free score of each row.

        Args:
            widths: the rows.
            awaited: rows whose scores are not known yet. The deviations are those after they are known, which does not
                depend on what they will be.
        """
        features = (_functions(widths) - self._centre) / self._spread
        variance = self._noise * ((features @ self._root) ** 2).sum(axis=1)
        if awaited is not None and len(awaited):
            others = (_functions(awaited) - self._centre) / self._spread @ self._root
            joint = features @ self._root @ others.T
            own = others @ others.T + np.eye(len(others))
            variance -= self._noise * (joint @ np.linalg.inv(own) * joint).sum(axis=1)
        return self._mean + features @ self._weights, np.sqrt(np.maximum(variance, 1e-18))


def _most_likely(values: Matrix, projected: Matrix, total: float, count: int) -> tuple[float, float, float]:
    """The largest log marginal likelihood, with the prior strength and the noise that give it."""

    def fit(strength: float) -> tuple[float, float, float]:
        explained = float((projected**2 / (values + strength)).sum())
        noise = max((total - explained) / count, 1e-18)
        doubt = float(np.log1p(values / strength).sum())
        return -0.5 * (count * (math.log(2 * math.pi * noise) + 1) + doubt), strength, noise

    return max(fit(strength) for strength in STRENGTHS)


def _functions(widths: Matrix) -> Matrix:
    return np.concatenate([widths, widths**2, np.log(widths), np.sqrt(widths)], axis=1)
