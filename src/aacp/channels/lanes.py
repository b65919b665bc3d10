"""Lanes: which units the dimensions of tensors hold, and their run-length code in the JSON of a channel graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

# What a dimension of a tensor holds: for each of its indices the number of the unit, or -1 if the index always stays.
# All dimensions with the same channels share one lane.
Lane = NDArray[np.int64]


def stays(lane: Lane, units: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which indices of a dimension are left if the units that are marked True stay."""
    return units[lane] | (lane < 0)


def to_runs(lane: Lane) -> list[list[int]]:
    """Run-length code of a lane: [first, step, count] for each stretch of equal steps."""
    steps = np.diff(lane)
    changes = np.append(np.flatnonzero(np.diff(steps)) + 1, len(steps))  # where a stretch of equal steps ends
    runs: list[list[int]] = []
    position = 0
    while position < len(lane):
        end = int(changes[np.searchsorted(changes, position, side="right")]) if position < len(steps) else position
        step = int(steps[position]) if position < len(steps) else 1
        runs.append([int(lane[position]), step, end - position + 1])
        position = end + 1
    return runs


def from_runs(runs: Iterable[Iterable[int]]) -> Lane:
    """The inverse of `to_runs`."""
    parts = [first + step * np.arange(count, dtype=np.int64) for first, step, count in runs]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


def uneven_lane(lanes: Sequence[Lane], widths: Sequence[int]) -> int | None:
    """The first lane that does not hold all units of a group equally often, or None. Units are numbered by group.

    Args:
        lanes: for each index of a dimension the number of its unit, or -1.
        widths: the number of units of each group.
    """
    groups = np.repeat(np.arange(len(widths)), widths)
    sizes = np.array(widths, dtype=np.int64)
    for number, lane in enumerate(lanes):
        units, counts = np.unique(lane[lane >= 0], return_counts=True)
        if not len(units):
            continue
        of_units = groups[units]
        starts = np.flatnonzero(np.diff(of_units, prepend=-1))
        present = np.diff(np.append(starts, len(units)))
        is_even = np.minimum.reduceat(counts, starts) == np.maximum.reduceat(counts, starts)
        if not is_even.all() or (present != sizes[of_units[starts]]).any():
            return number
    return None
