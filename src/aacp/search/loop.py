"""The search loop: ask a method for structures, evaluate them, report the scores, save the state, print progress."""

from __future__ import annotations

import builtins
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from aacp.errors import InvalidOption
from aacp.events import Event, emit
from aacp.runs.folder import RunFolder
from aacp.runs.mending import mend
from aacp.search.history import Candidate, History
from aacp.search.progress import Progress, showing
from aacp.search.saving import SearchFiles
from aacp.search.searcher import Searcher
from aacp.structure import Structure
from aacp.values import real_number, whole_number

Estimate = Callable[[Structure], float]
Map = Callable[[Estimate, list[Structure]], Iterable[float]]
Stop = Literal["evaluations", "generations", "seconds", "exhausted", "interrupted"]


WARMUP_EVALUATIONS = 3  # fewer than this many say nothing about the time left
MIN_SECONDS = 1e-9  # the shortest bound on the time of a search


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
    bounds = Bounds(evaluations, generations, seconds)
    steps = search_steps(method, estimate, bounds, folder, map)
    with showing(bounds.evaluations, verbose) as show:
        while True:
            try:
                show(next(steps))
            except StopIteration as end:
                return SearchResult.of(method, end.value)


def search_steps(
    method: Searcher[Any],
    estimate: Estimate,
    bounds: Bounds,
    folder: str | os.PathLike[str] | None = None,
    map: Map = builtins.map,
) -> Generator[Progress, None, Stop]:
    """`run_search` in steps: yields the progress after each evaluation, and returns why the search stopped."""
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
            for _ in _evaluated(method, estimate, batch, files, map):
                elapsed = time.monotonic() - begun
                yield _progress(method, bounds, elapsed, bounds.seconds_left(method, begun_at, elapsed))
        except KeyboardInterrupt:
            return "interrupted"
    return stop


def _evaluated(
    method: Searcher[Any], estimate: Estimate, batch: list[Structure], files: SearchFiles | None, map: Map
) -> Iterator[Candidate]:
    """Evaluate a batch: each candidate once its score is reported and recorded."""
    if files is not None:
        files.save(method)
    for structure, score in zip(batch, map(estimate, batch), strict=True):
        for candidate in method.tell([(structure, score)]):
            if files is not None:
                files.record(method, candidate)
            _report_event(method, candidate, files)
            yield candidate


def _report_event(method: Searcher[Any], candidate: Candidate, files: SearchFiles | None) -> None:
    best = method.best
    assert best is not None
    folder = "" if files is None else str(files.folder.path)
    emit(Event("evaluation", "search", len(method.history), {"score": candidate.score, "best": best.score}, folder))


def _progress(method: Searcher[Any], bounds: Bounds, elapsed: float, left: float | None) -> Progress:
    best = method.best
    assert best is not None
    slack = method.budget.slack(best.structure)
    return Progress(len(method.history), bounds.evaluations, method.generation, best, slack, elapsed, left)
