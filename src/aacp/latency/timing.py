"""Timing of calls in turns, so that other work on the machine slows all of them down alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from aacp.errors import InvalidOption


@dataclass(frozen=True)
class Quartiles:
    """A median and the two quartiles around it."""

    lower: float
    median: float
    upper: float

    @classmethod
    def of(cls, values: ArrayLike) -> Quartiles:
        """Return the median and the quartiles of values."""
        lower, median, upper = np.percentile(np.asarray(values, dtype=float), [25, 50, 75]).tolist()
        return cls(lower, median, upper)

    def scaled(self, factor: float) -> Quartiles:
        """Return all three numbers times a factor."""
        return Quartiles(factor * self.lower, factor * self.median, factor * self.upper)

    def to_json(self) -> dict[str, float]:
        return {"lower": self.lower, "median": self.median, "upper": self.upper}

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.lower:.3g} to {self.upper:.3g})"


@dataclass(frozen=True)
class Timing:
    """The seconds of one call in each turn."""

    name: str
    seconds: tuple[float, ...]

    @property
    def spread(self) -> Quartiles:
        """The median and the quartiles of the turns."""
        return Quartiles.of(self.seconds)


def time_interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    turns: int = 20,
    warmup: int = 3,
    seconds_per_sample: float = 0.005,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time calls in turns; `speedup` compares two of them.

    In each turn every call is measured once, and another call goes first.

    Args:
        calls: the calls by name; a call that starts work on a GPU must wait for its end.
        turns: how often each call is measured.
        warmup: how often each call is run before that.
        seconds_per_sample: a call that is shorter is repeated, so that a measurement takes about this long.
        clock: the current time in seconds.
    """
    _require_sensible(calls, turns, warmup, seconds_per_sample)
    for call in calls.values():
        for _ in range(warmup):
            call()
    repeats = {name: _repeats(call, seconds_per_sample, clock) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for turn in range(turns):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            seconds[name].append(_seconds(calls[name], repeats[name], clock))
    return {name: Timing(name, tuple(values)) for name, values in seconds.items()}


def speedup(before: Timing, after: Timing) -> Quartiles:
    """Return the ratio of the first to the second, turn by turn: above 1, `after` is faster."""
    if len(before.seconds) != len(after.seconds):
        raise InvalidOption(
            f"{before.name} was timed in {len(before.seconds)} turns, {after.name} in {len(after.seconds)}. "
            "Time them together, in one call of time_interleaved."
        )
    return Quartiles.of(np.asarray(before.seconds) / np.asarray(after.seconds))


def _repeats(call: Callable[[], object], seconds_per_sample: float, clock: Callable[[], float]) -> int:
    """Return how often to repeat a call so that all repetitions take about the given time."""
    once = _seconds(call, 1, clock)
    return max(1, math.ceil(seconds_per_sample / once)) if once > 0 else 1


def _seconds(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    """Return the mean seconds of a call that is repeated."""
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def _require_sensible(calls: Mapping[str, object], turns: int, warmup: int, seconds_per_sample: float) -> None:
    if not calls:
        raise InvalidOption("There is nothing to time. Give one call or more, by name.")
    if turns < 1 or warmup < 0 or not seconds_per_sample >= 0:
        raise InvalidOption(
            f"{turns} turns after {warmup} warm-up calls, with {seconds_per_sample} seconds a sample, cannot be timed. "
            "Give at least 1 turn, and nothing below 0."
        )
