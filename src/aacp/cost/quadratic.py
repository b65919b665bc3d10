"""QuadraticForm: a cost as a polynomial of second degree, so that every possible step is priced at once.

Multiply-accumulates and parameters are sums of products of two widths. A search computes the cost of
one more step hundreds of thousands of times; with the polynomial, that is one small matrix product for all groups.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from aacp.channels.space import SearchSpace
from aacp.cost.kinds import AnyCost

Counts = NDArray[np.float64]

PROBES = 64  # random structures on which the polynomial must agree with the cost


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """constant + linear . counts + counts . quadratic . counts, `quadratic` symmetric.

    The counts are those of the leading groups of the space, one per gene: without ties, the counts of all groups. If
    tied groups are rounded to different steps, a cost is not a polynomial in them, and `fit` finds none.
    """

    constant: float
    linear: NDArray[np.float64]
    quadratic: NDArray[np.float64]

    @classmethod
    def fit(cls, cost: AnyCost, space: SearchSpace) -> QuadraticForm | None:
        """The polynomial of a cost, found by differences, or None if the cost is not of second degree."""
        form = cls._through(cost, space)
        genes = np.random.default_rng(0).integers(space.levels, size=(PROBES, len(space)))
        true = np.asarray(cost(space.counts(genes)), dtype=np.float64)
        if not np.isfinite(true).all():
            return None
        found = form.values(space.leading_counts(genes).astype(np.float64))
        scale = np.abs(true).max(initial=np.finfo(float).tiny)
        return form if np.all(np.abs(found - true) <= 1e-11 * scale) else None

    @classmethod
    def _through(cls, cost: AnyCost, space: SearchSpace) -> QuadraticForm:
        """The polynomial through the smallest structure, a middle and the full width of each gene, and all pairs."""
        groups = len(space)
        first, second = np.triu_indices(groups, k=1)
        genes = np.zeros((1 + 2 * groups + len(first), groups), dtype=np.int64)
        own, top = np.arange(groups), space.levels - 1
        genes[1 + own, own] = top
        genes[1 + groups + own, own] = top // 2
        pairs = 1 + 2 * groups + np.arange(len(first))
        genes[pairs, first], genes[pairs, second] = top[first], top[second]
        rows = space.leading_counts(genes)
        rise = np.asarray(cost(space.counts(genes)), dtype=np.float64)
        base, rise = rise[0], rise - rise[0]
        far = (rows[1 + own, own] - rows[0]).astype(np.float64)
        near = (rows[1 + groups + own, own] - rows[0]).astype(np.float64)
        rise_far, rise_near = rise[1 : 1 + groups], rise[1 + groups : 1 + 2 * groups]
        # A group of one choice never moves, one of two moves along a line: their missing coefficients do not matter.
        square = _ratio(_ratio(rise_far, far) - _ratio(rise_near, near), np.where(near > 0, far - near, 0))
        slope = _ratio(rise_far, far) - square * far
        quadratic = np.diag(square)
        half = _ratio(rise[pairs] - rise_far[first] - rise_far[second], 2 * far[first] * far[second])
        quadratic[first, second] = quadratic[second, first] = half
        return cls._moved(float(base), slope, quadratic, rows[0].astype(np.float64))

    @classmethod
    def _moved(cls, base: float, slope: Counts, quadratic: Counts, origin: Counts) -> QuadraticForm:
        """The polynomial in counts from one in distances to `origin`."""
        pull = quadratic @ origin
        return cls(base - float(slope @ origin) + float(origin @ pull), slope - 2 * pull, quadratic)

    def values(self, rows: Counts) -> NDArray[np.float64]:
        """The cost of each row of counts."""
        return np.asarray(self.constant + ((self.linear + rows @ self.quadratic) * rows).sum(axis=1))

    def rises(self, rows: Counts, steps: Counts) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The cost of each row, and what it grows by if one count grows by its step: a value per row and group."""
        pull = rows @ self.quadratic
        values = self.constant + ((self.linear + pull) * rows).sum(axis=1)
        return values, steps * (self.linear + 2 * pull + steps * np.diagonal(self.quadratic))


def _ratio(numerator: Counts, denominator: Counts) -> Counts:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator != 0)
