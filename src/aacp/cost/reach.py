"""Reach: the part of a search space in which a limit on latency can be met, where the smallest structure is too slow.

Some kernels take longer for few channels than for many, mostly in int8. The fastest structure is found by coordinate
descent. Widths below its own are left out of the space, so that it becomes the smallest structure: rescaling relies on
the smallest structure to meet all limits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import TOLERANCE, Budget
from aacp.cost.kinds import LATENCY, AnyCost
from aacp.cost.quantities import amount
from aacp.errors import InfeasibleBudget

Genes = NDArray[np.int64]
Seconds = Callable[[Genes], NDArray[np.float64]]  # of many structures, one per row


def reachable(space: SearchSpace, budget: Budget, advice: str = "") -> SearchSpace:
    """The structures to search: all, or those at least as wide as the fastest one if the smallest one is too slow.

    Args:
        space: the legal structures.
        budget: the limits, on the costs of a graph.
        advice: what the user can do about a limit that cannot be met, besides loosening it.
    """
    limit = budget.limit_on(LATENCY)
    if limit is None or limit.holds(limit.cost(np.asarray(space.smallest))):
        return space
    others = budget.without(LATENCY)
    others.check(space)
    structure = fastest(space, limit.cost, others)
    seconds = float(limit.cost(np.asarray(structure)))
    if not limit.holds(seconds):
        where = "within the other limits" if others.limits else "in this space"
        raise InfeasibleBudget(
            f"{LATENCY}: {limit.phrase} cannot be met, since the fastest structure found {where} takes "
            f"{amount(seconds, limit.cost.unit)}, {seconds / limit.cost.full:.3g} of the unpruned network's time. "
            f"Loosen the limit{advice and f', or {advice}'}."
        )
    return space.at_least(structure)


def fastest(space: SearchSpace, latency: AnyCost, others: Budget) -> Structure:
    """The structure with the least latency that coordinate descent finds, from the smallest and the unpruned one.

    Args:
        space: the legal structures.
        latency: the latency of structures.
        others: limits on other costs, which the smallest structure meets and the result meets too.
    """

    def seconds(rows: Genes) -> NDArray[np.float64]:
        counts = space.counts(rows)
        return np.where(others.feasible(counts), latency(counts), np.inf)

    starts = [np.zeros_like(space.levels), space.levels - 1]
    ends = np.array([_descended(start, space.levels, seconds) for start in starts])
    return space.structure(ends[np.argmin(seconds(ends))])


def _descended(genes: Genes, levels: Genes, seconds: Seconds) -> Genes:
    """Set one gene after the other to its fastest value, the lowest of equals, until that saves nothing."""
    least = float(seconds(genes[None])[0])
    while True:
        before = least
        for gene, values in enumerate(levels.tolist()):
            rows = np.tile(genes, (values, 1))
            rows[:, gene] = np.arange(values)
            found = seconds(rows)
            genes = rows[np.argmin(found)]
            least = float(found.min())
        if not least < before * (1 - TOLERANCE):
            return genes
