"""Calls are timed in turns; a simulated clock determines the expected results."""

from __future__ import annotations

import pytest

import aacp
from aacp.latency.timing import Quartiles, Timing, speedup, time_interleaved


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


def test_the_spread_is_the_quartiles() -> None:
    timing = Timing("a", (4.0, 1.0, 3.0, 2.0, 5.0))
    assert timing.spread == Quartiles(2.0, 3.0, 4.0)
    assert timing.spread.to_json() == {"lower": 2.0, "median": 3.0, "upper": 4.0}
    assert str(timing.spread) == "3 (2 to 4)"


def test_what_cannot_be_timed_is_refused() -> None:
    with pytest.raises(aacp.InvalidOption, match="nothing to time"):
        time_interleaved({})
    with pytest.raises(aacp.InvalidOption, match="0 turns"):
        time_interleaved({"a": int}, turns=0)
    with pytest.raises(aacp.InvalidOption, match="timed in 2 turns, b in 1"):
        speedup(Timing("a", (1.0, 2.0)), Timing("b", (1.0,)))
