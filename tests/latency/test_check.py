"""A structure counts as faster if it was faster in three of four turns (runtimes/ tests the measurement itself)."""

from __future__ import annotations

import aacp
from aacp.latency.timing import Quartiles


def test_faster_means_in_most_turns() -> None:
    seconds = Quartiles(1.0, 1.0, 1.0)
    assert aacp.LatencyCheck(aacp.Structure([1]), seconds, Quartiles(0.8, 0.9, 0.99)).is_faster
    assert not aacp.LatencyCheck(aacp.Structure([1]), seconds, Quartiles(0.8, 0.9, 1.01)).is_faster
