"""Calls are timed in turns; a simulated clock determines the expected results."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import aacp
from aacp.latency.timing import (
    CONFIDENCE,
    MAX_LOOKS,
    MedianInterval,
    Quartiles,
    Timing,
    interval_rank,
    speedup,
    time_interleaved,
)


class Machine:
    """A clock, and calls that take as long as they say, times how busy the machine is."""

    def __init__(self) -> None:
        self.now, self.busy, self.order = 0.0, 1.0, []

    def call(self, name: str, seconds: float) -> None:
        self.order.append(name)
        self.now += seconds * self.busy
        self.busy = 1.0 + len(self.order) % 7  # others come and go

    def clock(self) -> float:
        return self.now


def test_a_steady_machine_gives_the_seconds_and_the_ratio_themselves() -> None:
    machine = Machine()
    calls = {"before": lambda: spend(machine, 0.3), "after": lambda: spend(machine, 0.1)}
    found = time_interleaved(calls, turns=5, clock=machine.clock)
    assert found["before"].seconds == pytest.approx([0.3] * 5)
    ratio = speedup(found["before"], found["after"])
    assert (ratio.lower, ratio.median, ratio.upper) == pytest.approx((3, 3, 3))


def spend(machine: Machine, seconds: float) -> None:
    machine.now += seconds


def test_each_turn_measures_every_call_once_and_another_one_goes_first() -> None:
    machine = Machine()
    calls = {name: (lambda name=name: machine.call(name, 1.0)) for name in "abc"}
    time_interleaved(calls, turns=3, warmup=0, clock=machine.clock)
    assert "".join(machine.order) == "abc" + "abc" + "bca" + "cab"  # the first three say how often to repeat


def test_short_calls_are_repeated_until_the_clock_has_something_to_measure() -> None:
    machine, count = Machine(), []

    def call() -> None:
        count.append(1)
        machine.now += 0.001

    found = time_interleaved({"short": call}, turns=2, warmup=4, seconds_per_sample=0.01, clock=machine.clock)
    assert len(count) == 4 + 1 + 2 * 10
    assert found["short"].seconds == pytest.approx([0.001, 0.001])


def test_a_call_that_is_interrupted_once_is_repeated_as_often_as_others() -> None:
    machine = Machine()
    counts = {"steady": 0, "interrupted": 0}

    def called(name: str) -> None:
        counts[name] += 1
        is_interrupted = name == "interrupted" and counts[name] == 4  # when the other one is timed for the first time
        machine.now += 0.02 if is_interrupted else 0.001

    calls = {name: partial(called, name) for name in counts}
    time_interleaved(calls, turns=2, warmup=3, seconds_per_sample=0.01, clock=machine.clock)
    assert counts["interrupted"] == counts["steady"] == 4 + 2 * 10


def test_the_spread_is_the_quartiles() -> None:
    timing = Timing("a", (4.0, 1.0, 3.0, 2.0, 5.0))
    assert timing.spread == Quartiles(2.0, 3.0, 4.0)
    assert timing.spread.to_json() == {"lower": 2.0, "median": 3.0, "upper": 4.0}
    assert str(timing.spread) == "3 (2 to 4)"


@pytest.mark.parametrize("count", [7, 20, 41, 80])
def test_the_interval_holds_the_median_as_often_as_it_claims_and_is_not_wider_than_needed(count: int) -> None:
    """Simulated: times whose few disturbed values are far away, with a true median of 1."""
    draws = np.sort(np.exp(np.random.default_rng(0).standard_normal((20_000, count)) ** 3), axis=1)
    rank = interval_rank(count)

    def coverage(rank: int) -> float:
        return float(np.mean((draws[:, rank - 1] <= 1) & (draws[:, -rank] >= 1)))

    assert coverage(rank) >= CONFIDENCE - 0.003
    assert coverage(rank + 1) < CONFIDENCE + 0.003


def test_the_interval_lies_between_two_values_and_is_the_whole_range_of_a_few() -> None:
    assert MedianInterval.of(range(1, 21)) == MedianInterval(5, 10.5, 16)
    assert MedianInterval.of([3, 1, 2]) == MedianInterval(1, 2, 3)
    assert MedianInterval.of([4]) == MedianInterval(4, 4, 4)
    assert 480 < interval_rank(1_100) < 550  # beyond the largest power of two that a float holds
    assert MedianInterval(0.9, 1.0, 1.2).scaled(2) == MedianInterval(1.8, 2.0, 2.4)


def decided_after(turns: int, machine: Machine, **options: float) -> int:
    """The turns that are measured, one second each, if the question is decided by a number of them."""
    found = time_interleaved(
        {"a": lambda: spend(machine, 1.0)}, turns=20, warmup=0, clock=machine.clock,
        is_decided=lambda timed: len(timed["a"].seconds) >= turns, **options,
    )  # fmt: skip
    return len(found["a"].seconds)


def test_turns_are_doubled_until_the_question_is_decided() -> None:
    assert decided_after(20, Machine(), max_seconds=1e9) == 20
    assert decided_after(21, Machine(), max_seconds=1e9) == 40
    assert decided_after(10**9, Machine(), max_seconds=1e9) == 20 * 2 ** (MAX_LOOKS - 1)


def test_an_undecided_question_takes_no_longer_than_stated() -> None:
    machine = Machine()
    assert decided_after(10**9, machine, max_seconds=50) == 49  # one second was spent before the turns
    assert machine.now == pytest.approx(50)


def test_what_cannot_be_timed_is_rejected() -> None:
    with pytest.raises(aacp.InvalidOption, match="nothing to time"):
        time_interleaved({})
    with pytest.raises(aacp.InvalidOption, match="0 turns"):
        time_interleaved({"a": int}, turns=0)
    with pytest.raises(aacp.InvalidOption, match="timed in 2 turns, b in 1"):
        speedup(Timing("a", (1.0, 2.0)), Timing("b", (1.0,)))
