"""A search on several processes: rank 0 searches, every rank estimates.

Only rank 0 has the method, the clock and the run folder. So bounds, Ctrl-C, resuming and the lock work as in
`run_search`, and the history does not depend on the number of ranks.
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
    """Run `run_search` on all processes of a launched fabric; each of them calls this and gets the same result.

    An error on any rank ends the search on all of them. A search can be resumed with another number of processes.

    Args:
        fabric: a launched Lightning fabric.
        method: the search method, new and the same on every rank.
        estimate: this rank's estimate, on its own device.
        evaluations: end after N evaluations of the whole history.
        generations: end after N generations.
        seconds: end after N seconds of this call.
        folder: the run folder, to resume from and to write to.
        verbose: print progress to stderr, on rank 0.
    """
    search = partial(run_search, method, estimate, evaluations=evaluations, generations=generations, seconds=seconds)
    search = partial(search, folder=folder, verbose=verbose)
    if fabric.world_size == 1:
        return search()
    links = RankLinks(fabric)
    try:
        return Lead(links).run(search, method) if links.rank == 0 else Worker(links, method, estimate).serve()
    finally:
        links.close()


class Lead:
    """Rank 0: hands out structures, collects their scores in order, and reports the end of the search to all ranks."""

    def __init__(self, links: RankLinks) -> None:
        self.links = links
        self._others = range(1, links.size)
        self._busy: set[int] = set()  # ranks that have not answered yet

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
        """The scores of a batch, in order: rank r estimates the structures r, r + size, r + 2 size and so on.

        A rank has one structure at a time. So if a rank dies, all but the last few scores have been recorded.
        """
        for rank, structure in zip(self._others, batch[1:], strict=False):
            self._hand_out(rank, structure)
        for position, structure in enumerate(batch):
            rank = position % self.links.size
            following = position + self.links.size
            yield self._collect(rank, batch[following : following + 1]) if rank else estimate(structure)

    def _agree(self, method: Searcher[Any]) -> None:
        """Let every rank check that it has the same method with the same settings."""
        with interrupts_held():
            for rank in self._others:
                self._ask(rank, written(method.state()))
        for rank in self._others:
            self._collect(rank)

    def _hand_out(self, rank: int, structure: Structure) -> None:
        with interrupts_held():
            self._ask(rank, torch.tensor(structure.counts, dtype=TRIAL))

    def _collect(self, rank: int, following: Sequence[Structure] = ()) -> float:
        """The score that a rank sends; it gets the following structure at once, so that it does not wait."""
        with interrupts_held():
            answer = self._answer(rank)
            if answer.dtype == TEXT:
                raise _rebuilt(*read(answer))
            for structure in following:
                self._hand_out(rank, structure)
        return float(answer)

    def _ask(self, rank: int, message: Tensor) -> None:
        self.links.send(message, rank)
        self._busy.add(rank)

    def _answer(self, rank: int) -> Tensor:
        self._busy.remove(rank)
        return self.links.receive(rank)

    def _dismiss(self, outcome: dict[str, Any]) -> None:
        """Report the end of the search to every rank that is still running, and wait until each has received it."""
        with interrupts_held():
            for rank in self._others:
                with suppress(WorkerFailed):
                    if rank in self._busy:
                        self._answer(rank)
                    self._ask(rank, written(outcome))
                    self._answer(rank)  # a launcher may end all ranks once one has failed, so all must know before


class Worker:
    """Any other rank: estimates the structures that rank 0 sends, until the search ends."""

    def __init__(self, links: RankLinks, method: Searcher[Any], estimate: Estimate) -> None:
        self.links = links
        self.method = method
        self.estimate = estimate
        self._failure: BaseException | None = None

    def serve(self) -> SearchResult:
        # A terminal sends Ctrl-C to every rank, but only rank 0 decides whether and when the search ends.
        with interrupts_to(signal.SIG_IGN):
            self._answer(partial(self._agree, read(self.links.receive(0))))
            while (message := self.links.receive(0)).dtype == TRIAL:
                self._answer(partial(self.estimate, Structure(message.tolist())))
            self.links.send(torch.zeros(1, dtype=SCORE), 0)
            return self._concluded(**read(message))

    def _answer(self, work: Callable[[], float]) -> None:
        try:
            answer = torch.tensor([float(work())], dtype=SCORE)
        except (Exception, KeyboardInterrupt) as error:
            self._failure = error
            answer = written(_described(error, self.links.rank))
        self.links.send(answer, 0)

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
        # The recommendation depends on a model fitted to the scores, whose last bits may differ between machines.
        best = self.method.best
        recommendation = self.method.history.find(recommended)
        assert best is not None
        assert recommendation is not None
        return SearchResult(best, recommendation, self.method.history, stopped)


def _described(error: BaseException, rank: int) -> tuple[str, str]:
    """The name of an error class of aacp (its own, or that of its nearest ancestor in aacp.errors), and a message."""
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt.__name__, ""
    if isinstance(error, AACPError):
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == errors.__name__), str(error)
    message = f"Rank {rank} failed: {first_line(error)}. Correct it; with a run folder, the same call resumes."
    return WorkerFailed.__name__, message


def _rebuilt(name: str, message: str) -> BaseException:
    """The error that `_described` has described."""
    return KeyboardInterrupt() if name == KeyboardInterrupt.__name__ else getattr(errors, name)(message)
