"""Lane: for each index of a tensor dimension the unit it belongs to, or -1 if it always stays."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Lane = NDArray[np.int64]


def to_runs(lane: Lane) -> list[list[int]]:
    """Run-length code of a lane: [first, step, count] for each stretch of equal steps."""
    runs: list[list[int]] = []
    position = 0
    while position < len(lane):
        step = int(lane[position + 1] - lane[position]) if position + 1 < len(lane) else 1
        steps = np.diff(lane[position:])
        breaks = np.flatnonzero(steps != step)
        count = int(breaks[0]) + 1 if len(breaks) else len(lane) - position
        runs.append([int(lane[position]), step, count])
        position += count
    return runs


def from_runs(runs: Iterable[Iterable[int]]) -> Lane:
    parts = [first + step * np.arange(count, dtype=np.int64) for first, step, count in runs]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
