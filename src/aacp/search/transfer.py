"""Transfer: candidates that searches under other budgets have evaluated, chosen for use in a new search."""

from __future__ import annotations

import numpy as np

from aacp.channels.structure import Structure
from aacp.cost.budget import Budget
from aacp.search.history import Candidate, History
from aacp.search.rescaling import Genes, Rescaling
from aacp.search.seeds import largest

MAX_PRIOR = 200  # a new search fits its model to at most this many earlier candidates, beside its own
CLOSEST = 50  # warm starts are chosen from this many earlier candidates, those with the closest costs
WARM_STARTS = 5  # a new search starts from this many earlier candidates, those with the best scores


def closest(known: History, budget: Budget) -> list[Candidate]:
    """The candidates with costs closest to the bounds of the budget, the closest first.

    The distance of a candidate is the largest relative deviation over all limits, above or below the bound.
    """
    if not len(known):
        return []
    ratios = known.costs([limit.cost for limit in budget.limits]) / [limit.bound for limit in budget.limits]
    distance = np.max(np.abs(ratios - 1), axis=1, initial=0.0)
    return [known[int(place)] for place in np.argsort(distance, kind="stable")[:MAX_PRIOR]]


def warm_starts(prior: list[Candidate], rescaling: Rescaling) -> Genes:
    """The best of the closest candidates, best first, each scaled to the budget; `prior` is what `closest` returned."""
    chosen = sorted(prior[:CLOSEST], key=lambda candidate: candidate.rank)[:WARM_STARTS]
    rows = [in_proportion(candidate.structure, rescaling) for candidate in chosen]
    return np.array(rows, dtype=np.int64).reshape(-1, len(rescaling.space))


def in_proportion(structure: Structure, rescaling: Rescaling) -> Genes:
    """The widest structure within the budget whose widths have the ratios of a known one."""
    # Steps in random groups, as in Algorithm 1, would undo what the search has learned about neighbouring groups.
    space = rescaling.space
    counts = space.leading_counts(space.genes(space.snap(structure)))
    return largest(counts / space.leading_counts(space.levels - 1), rescaling)
