"""Pareto fronts by divide and conquer: O(n log n) for a score and two costs, and log n times that for one cost more.

Rows are split in the middle of their lexicographic order. No row of the second half beats one of the first, so only the
survivors of the first half are compared with those of the second, and no longer in the first column.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Losses = NDArray[np.float64]  # one row for each point, one column for each quantity; less is better
Places = NDArray[np.int64]  # positions of rows

STRONG = 32  # rows that all others are compared with first
FEW_PAIRS = 8192  # up to this many pairs of rows are compared directly, which is faster than dividing them further


def unbeaten(losses: Losses) -> NDArray[np.bool_]:
    """For each row, whether no other is at most as large in every column and smaller in one; equal rows all stay."""
    if not losses.size:
        return np.ones(len(losses), dtype=bool)
    order = np.lexsort(losses.T[::-1])
    rows = losses[order]
    is_first = np.concatenate([[True], (rows[1:] != rows[:-1]).any(axis=1)])  # of rows that are equal
    different = rows[is_first]
    survives = np.zeros(len(different), dtype=bool)
    survives[_survivors(different, _not_beaten_by_few(different))] = True
    found = np.empty(len(losses), dtype=bool)
    found[order] = survives[is_first.cumsum() - 1]
    return found


def _not_beaten_by_few(rows: Losses) -> Places:
    """The places of the rows that the best few do not beat, which in most histories are far fewer than all."""
    if len(rows) <= FEW_PAIRS:
        return np.arange(len(rows))
    ranks = rows.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable").sum(axis=1)
    left = np.arange(len(rows))
    for best in np.argsort(ranks, kind="stable")[:STRONG]:
        values = rows[left]
        beaten = np.ones(len(left), dtype=bool)
        for column in range(rows.shape[1]):
            beaten &= rows[best, column] <= values[:, column]
        left = left[~beaten | (left == best)]
    return left


def _survivors(rows: Losses, places: Places) -> Places:
    """The places of the unbeaten rows, sorted by the second column; the given places are in lexicographic order."""
    column = min(1, rows.shape[1] - 1)
    if len(places) ** 2 <= FEW_PAIRS:
        values = rows[places]
        beaten = np.tril(_no_larger(values, values), -1).any(axis=1)
        kept = places[~beaten]
        return kept[np.argsort(rows[kept, column], kind="stable")]
    middle = len(places) // 2
    first = _survivors(rows, places[:middle])
    second = _survivors(rows, places[middle:])
    second = second[~_beaten(rows[first, 1:], rows[second, 1:])]
    both = np.concatenate([first, second])
    return both[np.argsort(rows[both, column], kind="stable")]  # linear: numpy merges two sorted runs


def _beaten(strong: Losses, weak: Losses) -> NDArray[np.bool_]:
    """For each weak row, whether a strong row is at most as large in every column."""
    columns = strong.shape[1]
    if not len(strong) or not len(weak) or not columns:
        return np.full(len(weak), len(strong) > 0)
    if len(strong) * len(weak) <= FEW_PAIRS:
        return np.asarray(_no_larger(strong, weak).any(axis=1))
    if columns == 1:
        return np.asarray(weak[:, 0] >= strong[:, 0].min())
    if columns == 2:
        return _beaten_in_plane(strong, weak)
    return _beaten_in_parts(strong, weak)


def _beaten_in_plane(strong: Losses, weak: Losses) -> NDArray[np.bool_]:
    """`_beaten` for two columns: sorted by the first, compared with the least of the second so far."""
    order = np.argsort(np.concatenate([strong[:, 0], weak[:, 0]]), kind="stable")  # of equals, strong rows first
    seconds = np.concatenate([strong[:, 1], np.full(len(weak), np.nan)])[order]  # the least is NaN before a strong row
    least = np.empty(len(order))
    least[order] = np.fmin.accumulate(seconds)
    return np.asarray(least[len(strong) :] <= weak[:, 1])


def _beaten_in_parts(strong: Losses, weak: Losses) -> NDArray[np.bool_]:
    """`_beaten` for three columns or more: both sides are split at a value of the first column."""
    firsts = np.concatenate([strong[:, 0], weak[:, 0]])
    if strong[:, 0].max() <= weak[:, 0].min():
        return _beaten(strong[:, 1:], weak[:, 1:])
    pivot = np.median(firsts)
    if pivot == firsts.min():
        pivot = firsts[firsts > pivot].min()
    low_strong = strong[:, 0] < pivot
    low_weak = weak[:, 0] < pivot
    found = np.empty(len(weak), dtype=bool)
    found[low_weak] = _beaten(strong[low_strong], weak[low_weak])
    high = np.flatnonzero(~low_weak)
    found[high] = _beaten(strong[low_strong, 1:], weak[high, 1:])  # every strong row here is less in the first column
    left = high[~found[high]]
    found[left] = _beaten(strong[~low_strong], weak[left])
    return found


def _no_larger(strong: Losses, weak: Losses) -> NDArray[np.bool_]:
    """For each weak row (first axis) and each strong row, whether the strong one is at most as large throughout."""
    found = np.ones((len(weak), len(strong)), dtype=bool)
    for column in range(strong.shape[1]):
        found &= strong[:, column] <= weak[:, column, None]
    return found
