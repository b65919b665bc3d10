"""Ledger: what a search has proposed: structures without a score, the history, and generations to learn from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from aacp.channels.space import SearchSpace
from aacp.search.history import Candidate, History
from aacp.search.outstanding import Outstanding, Proposal
from aacp.search.rescaling import Genes
from aacp.search.state import SearchState


class Trials(NamedTuple):
    """A generation that a method has proposed: all its rows, and the number of the first proposal behind it."""

    genes: Genes
    end: int


class Ledger:
    """Every proposal of a search, from the rows of genes to the scores that its method learns from."""

    def __init__(self, space: SearchSpace) -> None:
        self.history = History()
        self.outstanding = Outstanding()
        self.proposed = 0  # the number of structures, those without a score included
        self._space = space
        self._trials: list[Trials] = []  # generations that the method has not learned from yet
        self._fingerprint = 0  # of the history

    def is_new(self, counts: tuple[int, ...]) -> bool:
        """Whether a structure was never proposed."""
        return self.history.find(counts) is None and counts not in self.outstanding

    def unseen(self, genes: Genes) -> NDArray[np.bool_]:
        """For each row, whether it was never proposed and does not repeat a row above it."""
        rows = [tuple(row) for row in self._space.counts(genes).tolist()]
        first = {row: position for position, row in reversed(list(enumerate(rows)))}
        return np.array([first[row] == i and self.is_new(row) for i, row in enumerate(rows)], dtype=bool)

    def add_generation(self, genes: Genes, number: int) -> int:
        """Make the new rows of a generation outstanding; returns how many they are."""
        new = genes[self.unseen(genes)]
        for position, row in enumerate(new, start=self.proposed):
            self.outstanding.add(Proposal(position, number, self._space.structure(row)))
        self.proposed += len(new)
        self._trials.append(Trials(genes, self.proposed))
        return len(new)

    def add_scored(self, proposal: Proposal) -> None:
        """Move a proposal that has a score to the history."""
        self.outstanding.remove(proposal)
        self.history.add(proposal.candidate)
        self._fingerprint ^= proposal.candidate.fingerprint

    def pop_finished(self) -> Iterator[tuple[Genes, list[float]]]:
        """Yield each generation, in order, whose rows all have a score in the history, and remove it."""
        first = self.outstanding.first
        evaluated = self.proposed if first is None else first.number
        while self._trials and self._trials[0].end <= evaluated:
            genes = self._trials.pop(0).genes
            yield genes, [self._score(row) for row in genes]

    def _score(self, genes: Genes) -> float:
        candidate = self.history.find(self._space.counts(genes).tolist())
        assert candidate is not None
        return candidate.score

    def checkpoint(self) -> dict[str, Any]:
        """The fields of a SearchState that `resume` reads, without the history."""
        return {
            "asked": self.proposed,
            "trials": [row for trials in self._trials for row in trials.genes.tolist()],
            "generations": [[len(trials.genes), trials.end] for trials in self._trials],
            "pending": self.outstanding.to_json(),
            "evaluated": len(self.history),
            "fingerprint": f"{self._fingerprint:032x}",
        }

    def resume(self, saved: SearchState, candidates: Iterable[Candidate], fingerprint: int) -> None:
        """Take over what a state holds, and the candidates that it counts, with their fingerprint."""
        self.proposed = saved.asked
        self._trials = _read_trials(saved.trials, saved.generations, saved.asked, len(self._space))
        self.outstanding = Outstanding(saved.proposals)
        for early in map(Candidate.from_json, saved.early):
            self.outstanding.report(early.structure, early.score, early.images)
        self.history = History(candidates)
        self._fingerprint = fingerprint


def _read_trials(rows: Any, lengths: Any, proposed: int, groups: int) -> list[Trials]:
    """The generations of a saved search.

    Args:
        rows: the genes of all generations.
        lengths: of each generation its number of rows and its end; None in files of older versions, which hold one.
        proposed: the number of structures that were proposed.
        groups: the number of genes.
    """
    genes = np.array(rows, dtype=np.int64).reshape(-1, groups)
    parts = lengths if lengths is not None else [[len(genes), proposed]] if len(genes) else []
    begins = np.cumsum([0, *(length for length, _ in parts)])
    return [Trials(genes[begin : begin + length], end) for begin, (length, end) in zip(begins, parts, strict=False)]
