"""Seeds: analytic shapes over depth that are good first guesses, before any structure was evaluated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aacp.channels.space import SearchSpace
from aacp.search.rescaling import Genes, Rescaling

Shape = NDArray[np.float64]

FACTORS = 1000  # by how many factors `largest` multiplies a shape before it bisects between two of them
BISECTIONS = 20
DEPTH_SLOPES = (-0.6, -0.3, 0.3, 0.6)  # linear change of width over depth: negative is wide first, positive wide last


def seeds(rescaling: Rescaling, generator: np.random.Generator) -> Genes:
    """Flat, four slopes over depth, and for each of the first two limits: narrower where a group costs more.

    Groups produced by several layers (residual streams) matter more. If there are any, each shape is tried with these
    groups widened, and two flat shapes follow, with less and with no widening (ResNet56 at -50 %: estimates of 0.89
    with widening, 0.45 without).
    """
    depth = np.linspace(-1, 1, len(rescaling.space))
    shapes = [np.ones_like(depth), *(1 + slope * depth for slope in DEPTH_SLOPES)]
    shapes += [_shares(rescaling, limit) ** -0.25 for limit in range(min(2, len(rescaling.budget.limits)))]
    producers = np.array(rescaling.space.producer_counts, dtype=np.float64)
    if (producers > 1).any():
        shapes = [*(shape * producers for shape in shapes), producers**0.25, np.ones_like(depth)]
    return rescaling(np.array([largest(shape, rescaling) for shape in shapes]), generator)


def largest(shape: Shape, rescaling: Rescaling) -> Genes:
    """The widest structure of this shape within the budget, as far as the factors that are tried tell.

    If the shape itself is within the budget, the structure is at least as wide.
    """
    space = rescaling.space

    def scaled(factors: Shape) -> Genes:
        return nearest(factors[:, None] * shape, space)

    # A wider structure may cost less, as with kernels that are slow for some widths: bisection alone would miss it.
    factors = np.union1d(np.linspace(0, 1 / float(shape.min()), FACTORS + 1), [1.0])
    fits = np.flatnonzero(rescaling.budget.feasible(space.counts(scaled(factors))))
    if not len(fits):
        return np.zeros(len(space), dtype=np.int64)
    low, high = factors[fits[-1]], factors[min(fits[-1] + 1, len(factors) - 1)]
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_within = rescaling.budget.feasible(space.counts(scaled(np.array([middle]))))[0]
        low, high = (middle, high) if is_within else (low, middle)
    return np.asarray(scaled(np.array([low]))[0])


def nearest(fractions: Shape, space: SearchSpace) -> Genes:
    """The genes whose widths are nearest to fractions of the full widths, one fraction per gene."""
    full = space.leading_counts(space.levels - 1)
    above = space.leading_genes(np.minimum(np.ceil(fractions * full), full))
    below = np.maximum(above - 1, 0)
    wide, narrow = space.leading_counts(above), space.leading_counts(below)
    return np.where(wide - fractions * full <= fractions * full - narrow, above, below)


def _shares(rescaling: Rescaling, limit: int) -> Shape:
    """For each group, the cost that halving this group alone would save."""
    space = rescaling.space
    cost = rescaling.budget.limits[limit].cost
    top = space.levels - 1
    halved = np.tile(top, (len(space), 1))
    np.fill_diagonal(halved, nearest(np.full(len(space), 0.5), space))
    saved = float(cost(space.counts(top))) - np.asarray(cost(space.counts(halved)), dtype=np.float64)
    positive = saved[saved > 0]
    return np.asarray(np.maximum(saved, positive.min() if len(positive) else 1.0))
