"""A structure and the unpruned network are timed in turns, and what most turns say is believed."""

from __future__ import annotations

import pytest

import aacp
from aacp.latency.timers import WARMUP, time_in_turns


class LatencyStage:
    def __init__(self) -> None:
        self.now, self.runs = 0.0, 0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.runs += 1
        self.now += seconds * (5 if self.runs % 3 == 0 else 1)  # somebody else is busy in one run of three


class TimedNetwork:
    def __init__(self, clock: LatencyStage, pieces: list[float]) -> None:
        self.clock, self.pieces, self.noted = clock, pieces, []

    def whole(self) -> None:
        self.clock.spend(sum(self.pieces))

    def note(self) -> None:
        before = self.clock.now
        self.clock.spend(sum(self.pieces))
        busy = (self.clock.now - before) / sum(self.pieces)
        self.noted.append([busy * seconds for seconds in self.pieces])

    def notes(self) -> list[list[float]]:
        return self.noted


def test_disturbed_turns_do_not_count() -> None:
    clock = LatencyStage()
    full, structure = TimedNetwork(clock, [0.04, 0.06]), TimedNetwork(clock, [0.01, 0.04])
    found = time_in_turns(aacp.Structure([3]), structure, full, 3.0, clock)
    assert found.structure == (3,)
    assert found.whole == pytest.approx(0.05)
    assert found.reference == pytest.approx(0.1)
    assert found.pieces == pytest.approx((0.01, 0.04))
    assert found.reference_pieces == pytest.approx(0.1)
    assert len(structure.noted) > WARMUP
