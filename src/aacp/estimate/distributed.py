"""A search on several processes: rank 0 searches, every rank estimates.

The method, the clock and the run folder live on rank 0 alone, so bounds, Ctrl-C, resuming and the lock are those of
`run_search`, and the history does not depend on how many ranks there are.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from aacp import errors
from aacp.errors import AACPError, WorkerFailed, first_line
from aacp.estimate.rank_links import SCORE, TEXT, TRIAL, RankLinks, interrupts_held, interrupts_to, read, written
from aacp.search.loop import Estimate, SearchResult, run_search
from aacp.search.searcher import Searcher
from aacp.structure import Structure

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def search_on(
    fabric: Fabric,
    method: Searcher[Any],
    estimate: Estimate,
    *,
    evaluations: int | None = None,
    generations: int | None = None,
    seconds: float | None = None,
    folder: str | os.PathLike[str] | None = None,
    verbose: bool = False,
) -> SearchResult:
    """`run_search` on all processes of a launched fabric, each of which calls this; all get the same result.

    Every rank brings the same fresh `method` and its own `estimate`, on its own device. An error on any rank ends the
    search on all of them, and a folder can be taken up by any number of processes.
    """
    search = partial(run_search, method, estimate, evaluations=evaluations, generations=generations, seconds=seconds)
    search = partial(search, folder=folder, verbose=verbose)
    if fabric.world_size == 1:
        return search()
    star = RankLinks(fabric)
    try:
        return Lead(star).run(search, method) if star.rank == 0 else Worker(star, method, estimate).serve()
    finally:
        star.close()


class Lead:
    """Rank 0: hands out structures, collects the scores in order, and tells the others how it ended."""

    def __init__(self, star: RankLinks) -> None:
        self.star = star
        self._others = range(1, star.size)
        self._owing: set[int] = set()  # ranks whose answer is still to come

    def run(self, search: Callable[..., SearchResult], method: Searcher[Any]) -> SearchResult:
        try:
            self._agree(method)
            result = search(map=self.map)
        except BaseException as error:
            self._dismiss({"error": _described(error, rank=0)})
            raise
        recommended = list(result.recommended.structure)
        self._dismiss({"state": method.state(), "recommended": recommended, "stopped": result.stopped})
        return result

    def map(self, estimate: Estimate, batch: list[Structure]) -> Iterator[float]:
        """The scores of a batch, in order: rank r takes the structures r, r + size, r + 2 size and so on.

        A rank has one structure at a time. So if a rank dies, all but the last few scores were told and written.
        """
        for rank, structure in zip(self._others, batch[1:], strict=False):
            self._hand_out(rank, structure)
        for position, structure in enumerate(batch):
            rank, following = position % self.star.size, position + self.star.size
            yield self._collect(rank, batch[following : following + 1]) if rank else estimate(structure)

    def _agree(self, method: Searcher[Any]) -> None:
        """Have every rank check that it searches for the same thing."""
        with interrupts_held():
            for rank in self._others:
                self._ask(rank, written(method.state()))
        for rank in self._others:
            self._collect(rank)

    def _hand_out(self, rank: int, structure: Structure) -> None:
        with interrupts_held():
            self._ask(rank, torch.tensor(structure.counts, dtype=TRIAL))

    def _collect(self, rank: int, following: Sequence[Structure] = ()) -> float:
        """The score a rank owes; it goes on with the structure that follows while this one is told."""
        with interrupts_held():
            answer = self._answer(rank)
            if answer.dtype == TEXT:
                raise _rebuilt(*read(answer))
            for structure in following:
                self._hand_out(rank, structure)
        return float(answer)

    def _ask(self, rank: int, question: Tensor) -> None:
        self.star.send(question, rank)
        self._owing.add(rank)

    def _answer(self, rank: int) -> Tensor:
        self._owing.remove(rank)
        return self.star.receive(rank)

    def _dismiss(self, outcome: dict[str, Any]) -> None:
        """Tell every rank that is still there how the search ended, and see that it heard."""
        with interrupts_held():
            for rank in self._others:
                with suppress(WorkerFailed):
                    if rank in self._owing:
                        self._answer(rank)
                    self._ask(rank, written(outcome))
                    self._answer(rank)  # a launcher may end all ranks as soon as one fails: first, all must know


class Worker:
    """Any other rank: estimates what it is given until it is told how the search ended."""

    def __init__(self, star: RankLinks, method: Searcher[Any], estimate: Estimate) -> None:
        self.star, self.method, self.estimate = star, method, estimate
        self._failure: BaseException | None = None

    def serve(self) -> SearchResult:
        # A terminal sends Ctrl-C to every rank, but whether and when the search ends is for rank 0 to say.
        with interrupts_to(signal.SIG_IGN):
            self._answer(partial(self._agree, read(self.star.receive(0))))
            while (message := self.star.receive(0)).dtype == TRIAL:
                self._answer(partial(self.estimate, Structure(message.tolist())))
            self.star.send(torch.zeros(1, dtype=SCORE), 0)
            return self._concluded(**read(message))

    def _answer(self, work: Callable[[], float]) -> None:
        try:
            answer = torch.tensor([float(work())], dtype=SCORE)
        except (Exception, KeyboardInterrupt) as error:
            self._failure, answer = error, written(_described(error, self.star.rank))
        self.star.send(answer, 0)

    def _agree(self, state: dict[str, Any]) -> float:
        self.method.resume(state)
        return 0.0

    def _concluded(
        self,
        error: tuple[str, str] | None = None,
        state: dict[str, Any] | None = None,
        recommended: Sequence[int] = (),
        stopped: Any = None,
    ) -> SearchResult:
        if error is not None:
            raise self._failure or _rebuilt(*error)
        assert state is not None
        self.method.resume(state)
        # Which one is recommended depends on a model fitted to the scores, whose last bits are the machine's own.
        best, recommendation = self.method.best, self.method.history.find(recommended)
        assert best is not None
        assert recommendation is not None
        return SearchResult(best, recommendation, self.method.history, stopped)


def _described(error: BaseException, rank: int) -> tuple[str, str]:
    """An error as text: its name among ours (or that of its nearest ancestor there), and its message."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt.__name__, ""
    if isinstance(error, AACPError):
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__), str(error)
    said = f"Rank {rank} failed: {first_line(error)}. Mend its estimate; with a run folder, the same call goes on."
    return WorkerFailed.__name__, said


def _rebuilt(name: str, message: str) -> BaseException:
    return KeyboardInterrupt() if name == KeyboardInterrupt.__name__ else getattr(errors, name)(message)
