"""A structure and the unpruned network are timed in turns, and the median of the turns counts."""

from __future__ import annotations

import pytest

import aacp
from aacp.latency.timers import MAX_EXTENSION, MIN_TURNS, WARMUP, MeasurementProgress, time_in_turns
from aacp.user.progress import show_progress


class Machine:
    def __init__(self) -> None:
        self.now, self.runs = 0.0, 0

    def __call__(self) -> float:
        return self.now

    def spend(self, seconds: float) -> None:
        self.runs += 1
        self.now += seconds * (5 if self.runs % 3 == 0 else 1)  # somebody else is busy in one run of three


class TimedPieces:
    def __init__(self, clock: Machine, pieces: list[float]) -> None:
        self.clock, self.pieces, self.noted = clock, pieces, []

    def run(self) -> None:
        self.clock.spend(sum(self.pieces))

    def run_timed(self) -> None:
        before = self.clock.now
        self.clock.spend(sum(self.pieces))
        busy = (self.clock.now - before) / sum(self.pieces)
        self.noted.append([busy * seconds for seconds in self.pieces])

    def take_recorded(self) -> list[list[float]]:
        return self.noted


def test_disturbed_turns_do_not_count() -> None:
    clock = Machine()
    full, structure = TimedPieces(clock, [0.04, 0.06]), TimedPieces(clock, [0.01, 0.04])
    found = time_in_turns(aacp.Structure([3]), structure, full, 3.0, clock)
    assert found.structure == (3,)
    assert found.whole == pytest.approx(0.05)
    assert found.reference == pytest.approx(0.1)
    assert found.pieces == pytest.approx((0.01, 0.04))
    assert found.reference_pieces == pytest.approx(0.1)
    assert len(structure.noted) > WARMUP


class Noisy(TimedPieces):
    """A network whose every run takes another time."""

    def run(self) -> None:
        self.clock.spend(sum(self.pieces) * (1 + len(self.noted) % 5))


def test_a_noisy_measurement_is_extended_and_then_ends() -> None:
    clock = Machine()
    full, structure = TimedPieces(clock, [1.0]), Noisy(clock, [0.5])
    found = time_in_turns(aacp.Structure([3]), structure, full, 0.0, clock)
    assert len(structure.noted) == WARMUP + MAX_EXTENSION * MIN_TURNS
    assert found.noise > 0.015


def test_progress_prints_a_line_for_each_tenth_and_what_was_measured_before(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress():
        progress = MeasurementProgress("structures", 100, 20)
        for _ in range(80):
            progress.step()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "20 of 100 structures were done before"
    assert len(lines) == 1 + 1 + 8
    assert lines[-1].startswith("100/100")


def test_progress_is_silent_unless_it_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    MeasurementProgress("structures", 1).step()
    assert capsys.readouterr().err == ""
