"""Run-length code of lanes, which keeps the JSON of a channel graph short."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def to_runs(lane: NDArray[np.int64]) -> list[list[int]]:
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


def from_runs(runs: Iterable[Iterable[int]]) -> NDArray[np.int64]:
    """The inverse of `to_runs`."""
    parts = [first + step * np.arange(count, dtype=np.int64) for first, step, count in runs]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
