"""Timing of calls in turns, so that other work on the machine slows all of them down alike."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from aacp.errors import InvalidOption

# How sure the interval around a median is. A measurement is looked at up to MAX_LOOKS times, and each look is wrong
# about one of the two sides with a probability of 1 % at most: all looks together with 5 % at most.
CONFIDENCE = 0.98
MAX_LOOKS = 5  # with the turns doubled from look to look: 20, 40, 80, 160 and 320 turns
MAX_SECONDS = 60.0  # an undecided comparison is measured for about this long at most


AnyRange = TypeVar("AnyRange", bound="MedianRange")


@dataclass(frozen=True)
class MedianRange:
    """A median and a range around it."""

    lower: float
    median: float
    upper: float

    def scaled(self: AnyRange, factor: float) -> AnyRange:
        """Return all three numbers times a factor."""
        return type(self)(factor * self.lower, factor * self.median, factor * self.upper)

    def to_json(self) -> dict[str, float]:
        return {"lower": self.lower, "median": self.median, "upper": self.upper}

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.lower:.3g} to {self.upper:.3g})"


@dataclass(frozen=True)
class Quartiles(MedianRange):
    """A median and the two quartiles around it: how much the values differ from each other."""

    @classmethod
    def of(cls, values: ArrayLike) -> Quartiles:
        """Return the median and the quartiles of values."""
        lower, median, upper = np.percentile(np.asarray(values, dtype=float), [25, 50, 75]).tolist()
        return cls(lower, median, upper)


@dataclass(frozen=True)
class MedianInterval(MedianRange):
    """A median and the interval that it lies in with a probability of 98 %: how sure the median is.

    The interval shrinks if more values are measured, whereas quartiles do not.
    """

    @classmethod
    def of(cls, values: ArrayLike) -> MedianInterval:
        """Return the median of values and its interval, which is the whole range of fewer than 7 values."""
        ordered = np.sort(np.asarray(values, dtype=float))
        rank = interval_rank(len(ordered))
        return cls(float(ordered[rank - 1]), float(np.median(ordered)), float(ordered[-rank]))


def interval_rank(count: int) -> int:
    """Return the rank k such that the median lies between the k-th smallest and the k-th largest of `count` values.

    The number of values below the median has a binomial distribution, whatever the distribution of the values is. The
    median is below the k-th smallest value if fewer than k values are below the median. If even the smallest and the
    largest value do not reach CONFIDENCE, k is 1.
    """
    rank = 0
    ways = 1  # of the 2^count equally likely ones, in which at most `rank` values are below the median
    while ways / 2**count <= (1 - CONFIDENCE) / 2:
        rank += 1
        ways += math.comb(count, rank)
    return max(1, rank)


@dataclass(frozen=True)
class Timing:
    """The seconds of one call in each turn."""

    name: str
    seconds: tuple[float, ...]

    @property
    def spread(self) -> Quartiles:
        """The median and the quartiles of the turns."""
        return Quartiles.of(self.seconds)

    @property
    def interval(self) -> MedianInterval:
        """The median of the turns, and how sure it is."""
        return MedianInterval.of(self.seconds)


def time_interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    turns: int = 20,
    warmup: int = 3,
    seconds_per_sample: float = 0.005,
    clock: Callable[[], float] = time.perf_counter,
    is_decided: Callable[[Mapping[str, Timing]], bool] | None = None,
    max_seconds: float = MAX_SECONDS,
) -> dict[str, Timing]:
    """Time calls in turns; `speedup` compares two of them.

    In each turn every call is measured once, and another call goes first. If the timings do not decide a question, the
    turns are doubled, up to 16 times as many.

    Args:
        calls: the calls by name; a call that starts work on a GPU must wait for its end.
        turns: how often each call is measured.
        warmup: how often each call is run before that, besides once to see how long it takes.
        seconds_per_sample: a call that is shorter is repeated, so that a measurement takes about this long.
        clock: the current time in seconds.
        is_decided: whether timings are sufficient; None accepts the first.
        max_seconds: turns are added until the measurement has taken this long, about.
    """
    _require_sensible(calls, turns, warmup, seconds_per_sample)
    start = clock()
    repeats = {name: _repeats(call, warmup + 1, seconds_per_sample, clock) for name, call in calls.items()}
    timed = _Turns(calls, repeats, clock)
    timed.add(turns)
    for _ in range(1, MAX_LOOKS):
        if is_decided is None or is_decided(timed.timings) or clock() - start >= max_seconds:
            break
        timed.add(timed.count, until=start + max_seconds)
    return timed.timings


class _Turns:
    """The seconds of calls in each turn so far."""

    def __init__(
        self, calls: Mapping[str, Callable[[], object]], repeats: Mapping[str, int], clock: Callable[[], float]
    ) -> None:
        self._calls = calls
        self._repeats = repeats
        self._clock = clock
        self._seconds: dict[str, list[float]] = {name: [] for name in calls}
        self.count = 0

    @property
    def timings(self) -> dict[str, Timing]:
        return {name: Timing(name, tuple(values)) for name, values in self._seconds.items()}

    def add(self, turns: int, until: float = math.inf) -> None:
        """Measure further turns; none begins after the given time."""
        names = list(self._calls)
        for _ in range(turns):
            if self._clock() >= until:
                return
            first = self.count % len(names)
            for name in names[first:] + names[:first]:
                self._seconds[name].append(mean_seconds(self._calls[name], self._repeats[name], self._clock))
            self.count += 1


def speedup(before: Timing, after: Timing) -> MedianInterval:
    """Return how many times faster `after` is, turn by turn: if the interval is above 1, it is faster."""
    return ratio(before, after)


def ratio(first: Timing, second: Timing) -> MedianInterval:
    """Return the time of the first over that of the second, turn by turn."""
    if len(first.seconds) != len(second.seconds):
        raise InvalidOption(
            f"{first.name} was timed in {len(first.seconds)} turns, {second.name} in {len(second.seconds)}. "
            "Time them together, in one call of time_interleaved."
        )
    return MedianInterval.of(np.asarray(first.seconds) / np.asarray(second.seconds))


def _repeats(call: Callable[[], object], tries: int, seconds_per_sample: float, clock: Callable[[], float]) -> int:
    """Return how often to repeat a call so that all repetitions take about the given time, by its fastest try.

    A try that another process interrupts looks longer than the call is. Its samples would then be shorter than those of
    other calls and be interrupted less often, so that every turn would favour it.
    """
    once = min(mean_seconds(call, 1, clock) for _ in range(tries))
    return max(1, math.ceil(seconds_per_sample / once)) if once > 0 else 1


def mean_seconds(call: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
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
