"""Screening: a search scores structures on few images, and some of them are then scored on all.

These are the most promising ones, of which the best is delivered, and a sample taken at even intervals. What the
scores of the sample differ by is the error of scores on few images. The promising ones would not show it: they are
among the best partly by luck.
"""

from __future__ import annotations

from typing import Any

from aacp.channels.structure import Structure
from aacp.search.history import Candidate, History
from aacp.search.searcher import Searcher

CONFIRMED_SHARE = 0.05  # the share of the evaluated structures that are promising, and of those in the sample
MIN_CONFIRMED = 10  # at least so many of each


def to_confirm(method: Searcher[Any]) -> list[Structure]:
    """The structures of a finished search that are scored on all images: the most promising ones, then the sample."""
    promising = method.promising(_count(method.history))
    chosen = dict.fromkeys(candidate.structure for candidate in [*promising, *sample(method.history)])
    return list(chosen)


def sample(history: History) -> list[Candidate]:
    """Candidates that are spread evenly over a search, from the first to the last."""
    last = len(history) - 1
    steps = max(1, min(_count(history) - 1, last))
    return [history[position * last // steps] for position in range(steps + 1)] if last > 0 else list(history)


def _count(history: History) -> int:
    return max(MIN_CONFIRMED, round(CONFIRMED_SHARE * len(history)))
