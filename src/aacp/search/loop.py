"""The search loop: ask a method for structures, evaluate them, report the scores, save the state, print progress."""

from __future__ import annotations

import builtins
import math
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from aacp.errors import InvalidOption
from aacp.runs.folder import RunFolder
from aacp.runs.mending import mend
from aacp.search.history import Candidate, History
from aacp.search.saving import SearchFiles
from aacp.search.searcher import Searcher
from aacp.structure import Structure
from aacp.values import real_number, whole_number

Estimate = Callable[[Structure], float]
Map = Callable[[Estimate, list[Structure]], Iterable[float]]
Stop = Literal["evaluations", "generations", "seconds", "exhausted", "interrupted"]


WARMUP_EVALUATIONS = 3  # fewer than this many say nothing about the time left
MIN_SECONDS = 1e-9  # the shortest bound on the time of a search
MAX_SILENCE = 5.0  # seconds between two lines of progress, unless the best structure changes


@dataclass(frozen=True)
class SearchResult:
    """The outcome of a search: the best score, the structure that the method recommends, and why the search ended."""

    best: Candidate
    recommended: Candidate
    history: History
    stopped: Stop

    @classmethod
    def of(cls, method: Searcher[Any], stopped: Stop) -> SearchResult:
        best = method.best
        recommended = method.recommended
        if best is None or recommended is None:
            raise KeyboardInterrupt  # interrupted before the first evaluation: there is no result
        return cls(best, recommended, method.history, stopped)


@dataclass(frozen=True)
class Progress:
    """The progress of a search; `str` gives one line of text."""

    evaluations: int
    generation: int
    best: Candidate
    slack: dict[str, float]  # the unused share of each limit, for the best structure
    seconds: float  # since this call began
    seconds_left: float | None  # None if it is not known

    def is_news_after(self, earlier: Progress) -> bool:
        """Whether to print it: the best structure has changed, or MAX_SILENCE seconds have passed."""
        return self.best != earlier.best or self.seconds - earlier.seconds >= MAX_SILENCE

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {_duration(self.seconds_left)} left"
        slack = "".join(f", {limit} met with {100 * share:.2f} points to spare" for limit, share in self.slack.items())
        plural = "" if self.evaluations == 1 else "s"
        return (
            f"{self.evaluations} evaluation{plural}, generation {self.generation}, best {self.best.score:.4f} "
            f"(number {self.best.number}{slack}), {_duration(self.seconds)} so far{left}"
        )


@dataclass(frozen=True)
class Bounds:
    """When a search ends: evaluations in the whole history, generations, or seconds of this call."""

    evaluations: int | None = None
    generations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if all(bound is None for bound in asdict(self).values()):
            raise InvalidOption("The search has no end. Give evaluations, generations or seconds.")
        for name in ("evaluations", "generations"):
            bound = getattr(self, name)
            object.__setattr__(self, name, None if bound is None else whole_number(name, bound, 1))
        if self.seconds is not None:
            object.__setattr__(self, "seconds", real_number("seconds", self.seconds, MIN_SECONDS, math.inf))

    def met(self, method: Searcher[Any], elapsed: float) -> Stop | None:
        """The bound that has been reached, or None."""
        if self.evaluations is not None and len(method.history) >= self.evaluations:
            return "evaluations"
        if self.generations is not None and method.is_between_generations and method.generation + 1 >= self.generations:
            return "generations"
        return "seconds" if self.seconds is not None and elapsed >= self.seconds else None

    def cut(self, batch: list[Structure], method: Searcher[Any]) -> list[Structure]:
        """The part of a batch that the bound on evaluations allows; `ask` returns the rest again later."""
        return batch if self.evaluations is None else batch[: self.evaluations - len(method.history)]

    def seconds_left(self, method: Searcher[Any], begun_at: int, elapsed: float) -> float | None:
        """The time left at the speed of this call so far, or None while it is not known."""
        left = [] if self.seconds is None else [self.seconds - elapsed]
        evaluated = len(method.history) - begun_at
        pace = elapsed / max(1, evaluated)
        if self.evaluations is not None and evaluated >= WARMUP_EVALUATIONS:
            left.append(pace * (self.evaluations - len(method.history)))
        if self.generations is not None and evaluated >= WARMUP_EVALUATIONS and method.generation >= 0:
            per_generation = len(method.history) / (method.generation + 1)
            left.append(pace * per_generation * (self.generations - method.generation - 1))
        return max(0.0, min(left)) if left else None


def run_search(
    method: Searcher[Any],
    estimate: Estimate,
    *,
    evaluations: int | None = None,
    generations: int | None = None,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    map: Map = builtins.map,
    verbose: bool = False,
) -> SearchResult:
    """Search until one of the three bounds is reached. At least one of them must be given.

    Ctrl-C ends the search and returns what was found, with `stopped == "interrupted"`.

    Args:
        method: a searcher, built in or your own. A second call with the same one continues its search.
        estimate: a function from a structure to its score, where higher is better.
        evaluations: the bound on the number of candidates in the history, those of earlier calls included.
        generations: the bound on the number of generations, those of earlier calls included.
        seconds: the bound on the time of this call.
        folder: where to save every score and the state. If it holds an interrupted search, that search is resumed.
        map: evaluates a generation: any ordered map, such as `Executor.map`, to use several workers.
        verbose: print progress to stderr.
    """
    steps = search_steps(method, estimate, Bounds(evaluations, generations, seconds), folder, map)
    printed: Progress | None = None
    latest: Progress | None = None
    while True:
        try:
            latest = next(steps)
        except StopIteration as end:
            if verbose and latest is not printed:
                sys.stderr.write(f"{latest}\n")
            return SearchResult.of(method, end.value)
        if verbose and (printed is None or latest.is_news_after(printed)):
            sys.stderr.write(f"{latest}\n")
            printed = latest


def search_steps(
    method: Searcher[Any],
    estimate: Estimate,
    bounds: Bounds,
    folder: str | os.PathLike[str] | None = None,
    map: Map = builtins.map,
) -> Generator[Progress, None, Stop]:
    """`run_search` one batch at a time: yields the progress after each batch, and returns why it stopped."""
    if folder is None:
        return (yield from _steps(method, estimate, bounds, None, map))
    place = RunFolder.of(folder)
    with place.lock():
        mend(place)
        files = SearchFiles(place)
        files.resume(method)
        return (yield from _steps(method, estimate, bounds, files, map))


def _steps(
    method: Searcher[Any], estimate: Estimate, bounds: Bounds, files: SearchFiles | None, map: Map
) -> Generator[Progress, None, Stop]:
    begun = time.monotonic()
    begun_at = len(method.history)
    while not (stop := bounds.met(method, time.monotonic() - begun)):
        # An interrupt loses nothing: the checkpoint was written before the batch, and each score right after it.
        try:
            if files is not None and files.tell_recorded(method):
                continue
            batch = bounds.cut(method.ask(), method)
            if not batch:
                return "exhausted"
            _evaluate(method, estimate, batch, files, map)
        except KeyboardInterrupt:
            return "interrupted"
        elapsed = time.monotonic() - begun
        yield _progress(method, elapsed, bounds.seconds_left(method, begun_at, elapsed))
    return stop


def _evaluate(
    method: Searcher[Any], estimate: Estimate, batch: list[Structure], files: SearchFiles | None, map: Map
) -> None:
    if files is not None:
        files.save(method)
    for structure, score in zip(batch, map(estimate, batch), strict=True):
        for candidate in method.tell([(structure, score)]):
            if files is not None:
                files.record(method, candidate)


def _progress(method: Searcher[Any], elapsed: float, left: float | None) -> Progress:
    best = method.best
    assert best is not None
    return Progress(len(method.history), method.generation, best, method.budget.slack(best.structure), elapsed, left)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
