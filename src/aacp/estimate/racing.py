"""Racing: a trial that clearly loses after part of the images need not see the rest.

Held-out images come in random order, so the right answers among the first n of them are a draw without replacement:
how likely so few of them are, if the trial were as good as its incumbent over all images, is known exactly.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

LOOKS = (1 / 8, 1 / 4, 1 / 2)  # shares of the images after which a trial may be stopped


def is_losing(right: int, seen: int, total: int, incumbent: float, error: float) -> bool:
    """Whether `right` of `seen` images are too few to reach the incumbent's share over all `total`.

    Of trials that would reach it, at most a share of `error` is stopped, over all looks together.
    """
    needed = int(np.ceil(incumbent * total - 1e-9))
    if needed > total:
        return False  # nothing reaches such an incumbent: there is no race
    return _chance_of_so_few(right, seen, needed, total) <= error / len(LOOKS)


def _chance_of_so_few(right: int, seen: int, needed: int, total: int) -> float:
    """P(at most `right` among `seen`, drawn from `total` of which `needed` are right): the hypergeometric tail."""
    first = max(0, seen - (total - needed))
    if right < first:
        return 0.0
    counts = np.arange(first, min(right, needed) + 1)
    chosen = _log_choose(needed, counts, total) + _log_choose(total - needed, seen - counts, total)
    return float(np.exp(chosen - _log_choose(total, np.array([seen]), total)).sum())


def _log_choose(items: int, chosen: NDArray[np.int64], total: int) -> NDArray[np.float64]:
    logs = _log_factorials(total)
    result: NDArray[np.float64] = logs[items] - logs[chosen] - logs[items - chosen]
    return result


@cache
def _log_factorials(largest: int) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, largest + 1)))])
