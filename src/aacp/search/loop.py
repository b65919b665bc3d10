"""The search loop: ask a method for structures, evaluate them, report the scores, save the state, print progress.

New structures are asked for after every score. A method that looks ahead then proposes some while others are still
being evaluated, so that workers need not wait for each other. Scores are reported in the order of proposal: the history
does not depend on the number of workers.
"""

from __future__ import annotations

import builtins
import math
import os
import time
from collections import deque
from collections.abc import Generator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from aacp.channels.structure import Structure
from aacp.errors import InvalidOption
from aacp.runs.folder import RunFolder
from aacp.runs.mending import mend
from aacp.search.history import Candidate, History
from aacp.search.progress import Progress, showing
from aacp.search.queue import Estimate, Map, MapQueue, ScoreQueue
from aacp.search.saving import SearchFiles
from aacp.search.searcher import Searcher
from aacp.user.events import Event, emit
from aacp.user.values import real_number, whole_number

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
            if stopped == "interrupted":
                raise KeyboardInterrupt
            raise InvalidOption(
                f"The search ended before its first evaluation ({stopped}). Allow more seconds, or use a method that "
                "proposes a structure."
            )
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
        if self.generations is not None and method.finished_generations >= self.generations:
            return "generations"
        return "seconds" if self.seconds is not None and elapsed >= self.seconds else None

    def cut(self, batch: list[Structure], method: Searcher[Any]) -> list[Structure]:
        """The part of what `ask` returned that the bounds allow; it returns the rest again later."""
        if self.generations is not None:
            batch = [structure for structure in batch if method.generation_of(structure) < self.generations]
        if self.evaluations is None:
            return batch
        # Of the early ones, those with higher numbers do not count: the history ends before them.
        early = sum(candidate.number < self.evaluations for candidate in method.early)
        return batch[: self.evaluations - len(method.history) - early]

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
    queue: ScoreQueue | None = None,
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
        map: evaluates a batch: any ordered map, such as `Executor.map`, to use several workers.
        queue: evaluates structures as they are proposed, in place of `estimate` and `map`. No worker of it waits for
            the end of a batch.
    """
    bounds = Bounds(evaluations, generations, seconds)
    steps = search_steps(method, queue or MapQueue(estimate, map), bounds, folder)
    with showing(bounds.evaluations) as show:
        while True:
            try:
                show(next(steps))
            except StopIteration as end:
                return SearchResult.of(method, end.value)


def search_steps(
    method: Searcher[Any],
    queue: ScoreQueue,
    bounds: Bounds,
    folder: str | os.PathLike[str] | None = None,
) -> Generator[Progress, None, Stop]:
    """`run_search` in steps: yields the progress after each evaluation, and returns why the search stopped."""
    if folder is None:
        return (yield from _steps(method, queue, bounds, None))
    place = RunFolder.of(folder)
    with place.lock():
        mend(place)
        files = SearchFiles(place)
        files.resume(method)
        return (yield from _steps(method, queue, bounds, files))


def _steps(
    method: Searcher[Any], queue: ScoreQueue, bounds: Bounds, files: SearchFiles | None
) -> Generator[Progress, None, Stop]:
    begun = time.monotonic()
    begun_at = len(method.history)
    submitted: deque[Structure] = deque()  # the structures whose scores the queue has not returned yet
    try:
        while not (stop := bounds.met(method, time.monotonic() - begun)):
            if files is not None and files.tell_recorded(method):
                continue
            new = bounds.cut(method.ask(), method)[len(submitted) :]
            if new and files is not None:
                files.save(method)
            for structure in new:
                queue.submit(structure)
                submitted.append(structure)
            if not submitted:
                return "exhausted"
            score = queue.next_score()
            _tell(method, submitted.popleft(), score, files)
            elapsed = time.monotonic() - begun
            yield _progress(method, bounds, elapsed, bounds.seconds_left(method, begun_at, elapsed))
        return stop
    # An interrupt loses no score: the checkpoint is written before new structures are evaluated, each score at once.
    except KeyboardInterrupt:
        return "interrupted"
    finally:
        queue.clear()


def _tell(method: Searcher[Any], structure: Structure, score: float, files: SearchFiles | None) -> None:
    """Report a score to the method, to the folder and to listeners."""
    (candidate,) = method.tell([(structure, score)])
    if files is not None:
        files.record(method, candidate)
    best = method.best
    assert best is not None
    folder = "" if files is None else str(files.folder.path)
    emit(Event("evaluation", "search", len(method.history), {"score": candidate.score, "best": best.score}, folder))


def _progress(method: Searcher[Any], bounds: Bounds, elapsed: float, left: float | None) -> Progress:
    best = method.best
    assert best is not None
    costs = tuple(limit.reached(best.structure) for limit in method.budget.limits)
    return Progress(len(method.history), bounds.evaluations, method.generation, best, costs, elapsed, left)
