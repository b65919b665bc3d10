"""Curve: seconds as a function of a few widths, known on a grid, from scattered measurements.

Kernels step: a width just above a multiple of 16 may cost as much as the next multiple, one that is no multiple of 4
twice as much. The fit is a polynomial of widths and of widths rounded up, with coefficients that cannot be negative,
times what is left over: a Gaussian process in the logarithm, for which widths are alike if they are near, and more so
if the same power of two divides them. Pieces of one kind share a curve, each with a factor for its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Sizes = NDArray[np.int64]

ROUNDINGS = (1, 8, 16, 32)
LARGEST_MULTIPLE = 32
NEAR, FAR = 0.7, 2.0  # in octaves: how far a width's neighbours reach
DEVIATIONS = (0.05, 0.2, 0.6)  # of logarithms: how much multiples may matter; the likeliest is taken
NOISES = (0.01, 0.03, 0.1)
SMOOTH, PLACE = 0.1, 0.05  # deviations that neighbours share, and that a place has to itself


@dataclass(frozen=True, eq=False)
class Curve:
    """Seconds on a grid of widths, and a factor for each place; between grid points it is interpolated."""

    axes: tuple[Sizes, ...]
    seconds: Values  # one dimension for each width
    places: Values

    @classmethod
    def fit(cls, sizes: Sizes, places: Sizes, seconds: Values, axes: Sequence[Sizes]) -> Curve:
        """The curve through measurements: a row of widths each, which piece it was, and its seconds."""
        coefficients = non_negative(_features(sizes) / seconds[:, None], np.ones(len(seconds)))
        left_over = np.log(seconds / (_features(sizes) @ coefficients))
        process = _likeliest(sizes, places, left_over)
        grid = np.array(list(product(*axes)), dtype=np.int64)  # one empty row if there is none
        values = (_features(grid) @ coefficients) * np.exp(process.at(grid))
        shape = tuple(len(axis) for axis in axes)
        return cls(tuple(axes), values.reshape(shape), np.exp(process.of_places(int(places.max()) + 1)))


def _features(sizes: Sizes) -> Values:
    """1, every width, and every product of two of them, rounded up to several multiples."""
    columns = [np.ones(len(sizes))]
    for multiple in ROUNDINGS:
        widths = (-(-sizes // multiple) * multiple).astype(np.float64)
        columns.extend(widths.T)
        count = widths.shape[1]
        columns.extend(widths[:, i] * widths[:, j] for i in range(count) for j in range(i, count))
    return np.stack(columns, axis=1)


# -- what the polynomial leaves over ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Process:
    """A Gaussian process over widths and places."""

    sizes: Sizes
    places: Sizes
    deviation: float  # of what multiples do
    weights: Values
    log_likelihood: float

    @classmethod
    def of(cls, sizes: Sizes, places: Sizes, values: Values, deviation: float, noise: float) -> _Process:
        same_place = places[:, None] == places
        covariance = _alike(sizes, sizes, deviation) + PLACE**2 * same_place + noise**2 * np.eye(len(values))
        lower = np.linalg.cholesky(covariance)
        white = np.linalg.solve(lower, values)
        fit = -0.5 * float(white @ white) - float(np.log(np.diag(lower)).sum())
        return cls(sizes, places, deviation, np.linalg.solve(lower.T, white), fit)

    def at(self, sizes: Sizes) -> Values:
        """What is left over at other widths, wherever."""
        return np.asarray(_alike(sizes, self.sizes, self.deviation) @ self.weights)

    def of_places(self, count: int) -> Values:
        """What each place adds to it."""
        return np.asarray(PLACE**2 * np.bincount(self.places, self.weights, minlength=count), dtype=np.float64)


def _likeliest(sizes: Sizes, places: Sizes, values: Values) -> _Process:
    found = [_Process.of(sizes, places, values, deviation, noise) for deviation in DEVIATIONS for noise in NOISES]
    return max(found, key=lambda process: process.log_likelihood)


def _alike(some: Sizes, others: Sizes, deviation: float) -> Values:
    """How much the left-over of each of some widths has to do with that of each of the others."""
    near = np.ones((len(some), len(others)))
    far, dividing, alone = near.copy(), near.copy(), np.zeros(near.shape)
    for one, other in zip(some.T, others.T, strict=True):
        octaves = np.log2(np.maximum(one, 1))[:, None] - np.log2(np.maximum(other, 1))
        same = np.gcd(one, LARGEST_MULTIPLE)[:, None] == np.gcd(other, LARGEST_MULTIPLE)
        near = near * np.exp(-0.5 * (octaves / NEAR) ** 2)
        far = far * np.exp(-0.5 * (octaves / FAR) ** 2)
        dividing = dividing * same
        alone = alone + same / max(1, some.shape[1])
    return np.asarray(SMOOTH**2 * near + deviation**2 * far * (dividing + alone) / 2)


def non_negative(design: Values, target: Values, sweeps: int = 400) -> Values:
    """Least squares with coefficients of at least 0, one after the other."""
    scale = np.maximum(np.linalg.norm(design, axis=0), 1e-300)
    scaled = design / scale
    gram, pull = scaled.T @ scaled, scaled.T @ target
    found = np.zeros(len(pull))
    for _ in range(sweeps):
        for i in range(len(found)):
            found[i] = max(0.0, found[i] + pull[i] - float(gram[i] @ found))
    return np.asarray(found / scale)
