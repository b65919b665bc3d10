"""Seeds: shapes over depth that are good guesses before anything was measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from aacp.search.rescaling import Genes, Rescaling
from aacp.space import SearchSpace

Shape = NDArray[np.float64]

TILTS = (-0.6, -0.3, 0.3, 0.6)  # towards wide first or wide last groups


def seeds(rescaling: Rescaling, generator: np.random.Generator) -> Genes:
    """Flat, four tilts over depth, and narrower where a group costs more (by each of the first two limits).

    Where several layers make the channels of some groups, a channel of theirs is worth more: all shapes come with these
    groups wide, then flat ones with them less so and not at all (ResNet56 at -50 %: estimates of 0.89 against 0.45).
    """
    depth = np.linspace(-1, 1, len(rescaling.space))
    shapes = [np.ones_like(depth), *(1 + tilt * depth for tilt in TILTS)]
    shapes += [_shares(rescaling, limit) ** -0.25 for limit in range(min(2, len(rescaling.budget.limits)))]
    producers = np.array(rescaling.space.producer_counts, dtype=np.float64)
    if (producers > 1).any():
        shapes = [*(shape * producers for shape in shapes), producers**0.25, np.ones_like(depth)]
    return rescaling(np.array([largest(shape, rescaling) for shape in shapes]), generator)


def largest(shape: Shape, rescaling: Rescaling) -> Genes:
    """The widest structure of this shape that bisection finds within the budget."""
    space, low, high = rescaling.space, 0.0, 1 / float(shape.min())
    genes = np.zeros(len(space), dtype=np.int64)
    for _ in range(30):
        middle = (low + high) / 2
        trial = nearest(middle * shape, space)
        if rescaling.budget.feasible(space.counts(trial)):
            low, genes = middle, trial
        else:
            high = middle
    return genes


def nearest(fractions: Shape, space: SearchSpace) -> Genes:
    """The genes whose widths are nearest to fractions of the full widths."""
    full = space.counts(space.levels - 1)
    above = space.genes(np.minimum(np.ceil(fractions * full), full))
    below = np.maximum(above - 1, 0)
    wide, narrow = space.counts(above), space.counts(below)
    return np.where(wide - fractions * full <= fractions * full - narrow, above, below)


def _shares(rescaling: Rescaling, limit: int) -> Shape:
    """The part of a cost that goes when a group alone is halved, relative to the other groups."""
    space, cost = rescaling.space, rescaling.budget.limits[limit].cost
    top = space.levels - 1
    halved = np.tile(top, (len(space), 1))
    np.fill_diagonal(halved, nearest(np.full(len(space), 0.5), space))
    saved = float(cost(space.counts(top))) - np.asarray(cost(space.counts(halved)), dtype=np.float64)
    positive = saved[saved > 0]
    return np.asarray(np.maximum(saved, positive.min() if len(positive) else 1.0))
