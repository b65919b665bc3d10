"""Rescaling: turns any vector into a legal structure that meets every limit and uses the budget up (Alg. 1, corrected).

Genes are positions among the choices of a group, from 0 (`SearchSpace.counts` converts them to counts of units). All
functions work on many vectors at once, one per row.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget, Limit
from aacp.cost.quadratic import QuadraticForm
from aacp.user.options import require_known

Genes = NDArray[np.int64]
Form = Literal["two-sided", "shrink", "printed"]
SafeForm = Literal["two-sided", "shrink"]  # the forms whose result always meets the budget
_Condition = Callable[[Genes], NDArray[np.bool_]]


def rescale(
    widths: ArrayLike, space: SearchSpace, budget: Budget, generator: np.random.Generator, form: Form = "two-sided"
) -> Structure:
    """A legal structure near `widths` that meets every limit and cannot be widened by a single step (Alg. 1).

    Args:
        widths: any numbers, one per group; they are rounded down to legal counts first.
        space: the legal structures.
        budget: the limits.
        generator: draws which group shrinks or grows next.
        form: "two-sided" shrinks and then grows, "shrink" only shrinks, "printed" is the loop as the paper prints
            it, whose result may break a limit.
    """
    genes = space.genes(space.snap(widths))  # Alg. 1, l. 1-5
    return space.structure(Rescaling(space, budget)(genes[None], generator, form)[0])


class Rescaling:
    """Algorithm 1 for one space and budget.

    It terminates for every cost, monotone or not. Each step down removes channels, and the smallest structure meets the
    budget (checked at the start); each step up adds channels, up to the full width.

    Args:
        space: the legal structures.
        budget: the limits.
        uses_forms: whether costs that are quadratic in the counts are computed as such, which is faster.
    """

    def __init__(self, space: SearchSpace, budget: Budget, *, uses_forms: bool = True) -> None:
        budget.check(space)
        self.space = space
        self.budget = budget
        self._forms = [QuadraticForm.fit(limit.cost, space) if uses_forms else None for limit in budget.limits]
        self._top = space.levels - 1
        genes = np.minimum(np.arange(space.levels.max())[:, None], self._top)
        # The count of each gene and its distance to the next, as floats, for which matrix products are fast. Of tied
        # groups only the leading one is listed: the polynomials are in these counts.
        self._counts = space.leading_counts(genes).T.astype(np.float64)
        self._steps = np.diff(self._counts, axis=1, append=self._counts[:, -1:])
        # The position of each gene's row in these two tables when they are flattened.
        self._offsets = self._counts.shape[1] * np.arange(len(space))

    def __call__(self, genes: Genes, generator: np.random.Generator, form: Form = "two-sided") -> Genes:
        """Rescale every row."""
        require_known("rescaling", form, get_args(Form))
        start = np.clip(genes, 0, self._top)
        if form == "printed":
            return self._shrunk(start, generator, self._printed_loop_continues)
        rows = self._shrunk(start, generator, self._some_limit_breaks)
        if form == "two-sided":
            rows = self._grown(rows, generator)
        # A polynomial that agrees with its cost on every probe may differ elsewhere, so the cost is checked last.
        if any(self._forms) and not self.budget.feasible(self.space.counts(rows)).all():
            return Rescaling(self.space, self.budget, uses_forms=False)(start, generator, form)
        return rows

    def results(self, form: SafeForm) -> Genes:
        """Every structure that a form can result in, which it leaves as it is; the whole space is listed for it."""
        every: Genes = np.array(list(itertools.product(*map(range, self.space.levels.tolist()))), dtype=np.int64)
        kept = (every == self(every, np.random.default_rng(0), form)).all(axis=1)
        return np.asarray(every[kept])

    # -- down ---------------------------------------------------------------------------------------------------------

    def _shrunk(self, genes: Genes, generator: np.random.Generator, must_shrink: _Condition) -> Genes:
        """Alg. 1, l. 6-9: while a row must shrink, one of its genes, drawn uniformly, loses a step."""
        genes = genes.copy()
        active = np.arange(len(genes))
        while len(active := active[must_shrink(genes[active])]):
            # Paper: line 8 prints e_i where it means e_ind.
            genes[active, _drawn(genes[active] > 0, generator)] -= 1
        return genes

    def _some_limit_breaks(self, genes: Genes) -> NDArray[np.bool_]:
        # Paper: line 6 joins the limits with "and", so that it stops as soon as one of them holds; with R_p = 0, as
        # in both tables of results, it never enforces R_f. It must be "or".
        return np.asarray(self._breaks(genes).any(axis=0))

    def _printed_loop_continues(self, genes: Genes) -> NDArray[np.bool_]:
        return np.asarray(self._breaks(genes).all(axis=0) & (len(self.budget.limits) > 0))

    def _breaks(self, genes: Genes) -> NDArray[np.bool_]:
        """Which limits are broken: one row per limit, one column per structure."""
        counts = self.space.counts(genes)
        leading = self.space.leading_counts(genes).astype(np.float64)
        breaks = np.empty((len(self.budget.limits), len(genes)), dtype=bool)
        for row, limit, form in zip(breaks, self.budget.limits, self._forms, strict=True):
            row[:] = ~limit.holds(form.values(leading) if form else limit.cost(counts))
        return breaks

    # -- up -----------------------------------------------------------------------------------------------------------

    def _grown(self, genes: Genes, generator: np.random.Generator) -> Genes:
        """While a step up fits, take one, drawn uniformly from those not known to break a limit."""
        # Paper: Algorithm 1 only shrinks. A random vector starts far below the budget and would stay there.
        genes = self._leapt(genes, generator) if self.budget.limits else genes.copy()
        active = np.arange(len(genes))
        rejected = np.zeros(genes.shape, dtype=bool)
        moved = np.zeros(len(genes), dtype=bool)  # whether the row has changed since its first rejected step
        while len(active):
            allowed = self._fits_by_form(genes[active]) & ~rejected[active]
            some = allowed.any(axis=1)
            # With a cost that is not monotone, a rejected step may fit after others: retry until nothing moves.
            again = active[~some & moved[active]]
            rejected[again] = False
            moved[again] = False
            active = active[some]
            drawn = _drawn(allowed[some], generator)
            fits = self._fits_by_cost(genes[active], drawn)
            genes[active[fits], drawn[fits]] += 1
            rejected[active[~fits], drawn[~fits]] = True
            moved[active[fits]] = rejected[active[fits]].any(axis=1)
            active = np.sort(np.concatenate([active, again]))
        return genes

    def _fits_by_cost(self, genes: Genes, drawn: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether one step up in the drawn gene of each row stays within every limit that has no form."""
        fits = np.ones(len(genes), dtype=bool)
        if not all(self._forms):
            trial = genes.copy()
            trial[np.arange(len(trial)), drawn] += 1
            counts = self.space.counts(trial)
            for limit in self._limits_without_form():
                fits &= limit.holds(limit.cost(counts))
        return fits

    def _limits_without_form(self) -> list[Limit]:
        return [limit for limit, form in zip(self.budget.limits, self._forms, strict=True) if form is None]

    def _leapt(self, genes: Genes, generator: np.random.Generator) -> Genes:
        """Take many random steps up at once, as long as about twice as many would fit: a shortcut for `_grown`."""
        genes = genes.copy()
        active = np.arange(len(genes))
        longest = np.full(len(genes), np.inf)
        while len(active):
            allowed, room = self._room(genes[active])
            strides = np.minimum(room / 2, longest[active]).astype(np.int64)
            far = strides > 1
            active, allowed, strides = active[far], allowed[far], strides[far]
            steps = generator.random(allowed.shape) * allowed.sum(axis=1, keepdims=True) < strides[:, None]
            trial = genes[active] + (steps & allowed)
            fits = ~self._breaks(trial).any(axis=0)
            genes[active[fits]] = trial[fits]
            longest[active[~fits]] = strides[~fits] / 2
        return genes

    def _fits_by_form(self, genes: Genes) -> NDArray[np.bool_]:
        """Which steps up stay below the full width and within every limit that has a form."""
        fits = genes < self._top
        for limit, values, rises in self._priced(genes):
            fits &= limit.holds(values[:, None] + rises)
        return fits

    def _room(self, genes: Genes) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Which steps up fit, and about how many of them would fit together."""
        fits = self._fits_by_form(genes)
        room = np.full(len(genes), np.inf)
        for limit, values, rises in self._priced(genes):
            mean = (rises * fits).sum(axis=1) / np.maximum(fits.sum(axis=1), 1)
            room = np.minimum(room, _times(limit.bound - values, mean))
        for limit in self._limits_without_form():  # the mean rise per step, from taking all steps together
            values, more = (limit.cost(self.space.counts(rows)) for rows in (genes, genes + fits))
            mean = (more - values) / np.maximum(fits.sum(axis=1), 1)
            room = np.minimum(room, _times(limit.bound - values, mean))
        return fits, room

    def _priced(self, genes: Genes) -> Iterator[tuple[Limit, NDArray[np.float64], NDArray[np.float64]]]:
        """Each limit that has a form, the cost of each row, and what every step up would add to it."""
        places = genes + self._offsets
        counts = self._counts.take(places)
        steps = self._steps.take(places)
        for limit, form in zip(self.budget.limits, self._forms, strict=True):
            if form is not None:
                yield limit, *form.rises(counts, steps)


def _times(room: NDArray[np.float64], step: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many times a step fits into the room that is left; 0 for a step that adds nothing."""
    return np.divide(room, step, out=np.zeros_like(room, dtype=np.float64), where=step > 0)


def _drawn(allowed: NDArray[np.bool_], generator: np.random.Generator) -> NDArray[np.int64]:
    """One allowed column of each row, drawn uniformly."""
    ranks = allowed.cumsum(axis=1)
    return np.asarray((ranks > np.floor(generator.random(len(allowed)) * ranks[:, -1])[:, None]).argmax(axis=1))
