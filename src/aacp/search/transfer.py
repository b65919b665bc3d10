"""Lessons: what searches under other budgets have found out, and a new search need not."""

from __future__ import annotations

import numpy as np

from aacp.cost.budget import Budget
from aacp.search.history import Candidate, History

LESSONS = 200  # candidates that a model learns from beside its own
CLOSE, BEGINNERS = 50, 5  # the best so many of the closest are where a search begins


def closest(known: History, budget: Budget) -> list[Candidate]:
    """The candidates that cost about what the budget allows, the closest first."""
    if not len(known):
        return []
    counts = np.array([candidate.structure.counts for candidate in known], dtype=np.int64)
    ratios = [np.asarray(limit.cost(counts), dtype=np.float64) / limit.bound for limit in budget.limits]
    distance = np.max([np.zeros(len(known)), *(np.abs(ratio - 1) for ratio in ratios)], axis=0)
    return [known[int(place)] for place in np.argsort(distance, kind="stable")[:LESSONS]]


def warm_starts(lessons: list[Candidate]) -> list[Candidate]:
    """The best of the closest."""
    return sorted(lessons[:CLOSE], key=lambda candidate: candidate.rank)[:BEGINNERS]
