"""The search loop: ask a method, evaluate, tell it, keep everything on disk, and say how far it is."""

from __future__ import annotations

import builtins
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from aacp.errors import InvalidOption
from aacp.runs.folder import RunFolder
from aacp.search.history import Candidate, History
from aacp.search.searcher import Searcher
from aacp.structure import Structure

Estimate = Callable[[Structure], float]
Map = Callable[[Estimate, list[Structure]], Iterable[float]]
Stop = Literal["evaluations", "generations", "seconds", "exhausted", "interrupted"]


HISTORY, CHECKPOINT = "history.jsonl", "search.json"
FIRST = 3  # evaluations that tell nothing of the pace
PATIENCE = 5.0  # seconds that a search may be silent


@dataclass(frozen=True)
class SearchResult:
    """What a search found: `best` is the best score, `recommended` the method's own choice; and why it ended."""

    best: Candidate
    recommended: Candidate
    history: History
    stopped: Stop

    @classmethod
    def of(cls, method: Searcher[Any], stopped: Stop) -> SearchResult:
        best, recommended = method.best, method.recommended
        if best is None or recommended is None:
            raise KeyboardInterrupt  # before the first evaluation there is nothing to give back
        return cls(best, recommended, method.history, stopped)


@dataclass(frozen=True)
class Progress:
    """How far a search is; as text, one line of it."""

    evaluations: int
    generation: int
    best: Candidate
    slack: dict[str, float]  # of the best, for each limit, as a share
    seconds: float  # since this call began
    seconds_left: float | None  # as far as it can be told

    def is_news_after(self, earlier: Progress) -> bool:
        """Whether it need be said: the best is another one, or some time has passed."""
        return self.best != earlier.best or self.seconds - earlier.seconds >= PATIENCE

    def __str__(self) -> str:
        left = "" if self.seconds_left is None else f", about {_duration(self.seconds_left)} left"
        slack = "".join(f", {limit} kept with {100 * share:.2f} points to spare" for limit, share in self.slack.items())
        plural = "" if self.evaluations == 1 else "s"
        return (
            f"{self.evaluations} evaluation{plural}, generation {self.generation}, best {self.best.score:.4f} "
            f"(number {self.best.number}{slack}), {_duration(self.seconds)} so far{left}"
        )


@dataclass(frozen=True)
class Bounds:
    """When a search ends: evaluations of the whole history, generations from 0, or seconds of this call."""

    evaluations: int | None = None
    generations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if all(bound is None for bound in asdict(self).values()):
            raise InvalidOption("A search needs an end. Give evaluations, generations or seconds.")
        for name, bound in asdict(self).items():
            if bound is not None and not bound > 0:
                raise InvalidOption(f"{name} is {bound}, but a search needs more than none. Give a positive number.")

    def met(self, method: Searcher[Any], elapsed: float) -> Stop | None:
        """The bound that is met, if any."""
        if self.evaluations is not None and len(method.history) >= self.evaluations:
            return "evaluations"
        if self.generations is not None and method.is_between_generations and method.generation + 1 >= self.generations:
            return "generations"
        return "seconds" if self.seconds is not None and elapsed >= self.seconds else None

    def cut(self, batch: list[Structure], method: Searcher[Any]) -> list[Structure]:
        """As much of a batch as the evaluations still allow; the rest stays to be asked for."""
        return batch if self.evaluations is None else batch[: self.evaluations - len(method.history)]

    def seconds_left(self, method: Searcher[Any], begun_at: int, elapsed: float) -> float | None:
        """How long it still takes at the pace of this call; that of its first evaluations says little."""
        left = [] if self.seconds is None else [self.seconds - elapsed]
        evaluated = len(method.history) - begun_at
        pace = elapsed / max(1, evaluated)
        if self.evaluations is not None and evaluated >= FIRST:
            left.append(pace * (self.evaluations - len(method.history)))
        if self.generations is not None and evaluated >= FIRST and method.generation >= 0:
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
    """Search until one of the three bounds is met (evaluations count the whole history, seconds this call).

    With a folder, what an earlier call left there is taken up again. `map` spreads a generation over workers: any
    ordered map, such as `Executor.map`. Ctrl-C ends the search in good order, with `stopped == "interrupted"`.
    """
    steps = search_steps(method, estimate, Bounds(evaluations, generations, seconds), folder, map)
    said, latest = None, None
    while True:
        try:
            latest = next(steps)
        except StopIteration as end:
            if verbose and latest is not said:
                sys.stderr.write(f"{latest}\n")
            return SearchResult.of(method, end.value)
        if verbose and (said is None or latest.is_news_after(said)):
            sys.stderr.write(f"{latest}\n")
            said = latest


def search_steps(
    method: Searcher[Any],
    estimate: Estimate,
    bounds: Bounds,
    folder: str | os.PathLike[str] | None = None,
    map: Map = builtins.map,
) -> Generator[Progress, None, Stop]:
    """`run_search` a batch at a time: yields the progress after each, and returns why it stopped."""
    if folder is None:
        return (yield from _steps(method, estimate, bounds, None, map))
    place = RunFolder.of(folder)
    with place.lock():
        _take_up(method, place)
        return (yield from _steps(method, estimate, bounds, place, map))


def _steps(
    method: Searcher[Any], estimate: Estimate, bounds: Bounds, folder: RunFolder | None, map: Map
) -> Generator[Progress, None, Stop]:
    begun, begun_at = time.monotonic(), len(method.history)
    while not (stop := bounds.met(method, time.monotonic() - begun)):
        # An interrupt needs no rescue: the checkpoint was written before the batch, and each score right after it.
        try:
            batch = bounds.cut(method.ask(), method)
            if not batch:
                return "exhausted"
            _evaluate(method, estimate, batch, folder, map)
        except KeyboardInterrupt:
            return "interrupted"
        elapsed = time.monotonic() - begun
        yield _progress(method, elapsed, bounds.seconds_left(method, begun_at, elapsed))
    return stop


def _evaluate(
    method: Searcher[Any], estimate: Estimate, batch: list[Structure], folder: RunFolder | None, map: Map
) -> None:
    if folder is not None:
        folder.write_json(CHECKPOINT, method.state())
    for structure, score in zip(batch, map(estimate, batch), strict=True):
        for candidate in method.tell([(structure, score)]):
            if folder is not None:
                folder.append(HISTORY, candidate.to_json())


def recorded(folder: str | os.PathLike[str]) -> History:
    """Everything that a run has evaluated: by its search and by those in folders of its own inside it."""
    path = Path(folder)
    found = [path, *sorted({log.parent for log in path.rglob(HISTORY)} - {path})]
    return History.merged(History(map(Candidate.from_json, RunFolder(each).read_log(HISTORY))) for each in found)


def _take_up(method: Searcher[Any], folder: RunFolder) -> None:
    """Resume from the checkpoint, then tell the scores that were written after it."""
    state = folder.read_json(CHECKPOINT)
    if state is None:
        return
    method.resume(state)
    told = [Candidate.from_json(record) for record in folder.read_log(HISTORY)]
    method.tell([(known.structure, known.score) for known in told if method.history.find(known.structure) is None])


def _progress(method: Searcher[Any], elapsed: float, left: float | None) -> Progress:
    best = method.best
    assert best is not None
    return Progress(len(method.history), method.generation, best, method.budget.slack(best.structure), elapsed, left)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
