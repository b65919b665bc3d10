"""Ahead: a small search method that looks ahead and whose proposals depend on every score and on their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aacp.search.rescaling import Genes, SafeForm
from aacp.search.searcher import Searcher

WINDOW = 6  # at most so many structures are outstanding
ROWS = 2  # structures of a proposal


class Ahead(Searcher[Any]):
    """Moves genes of the last structure that raised a running mean of the scores."""

    def begin(self) -> None:
        self.top: list[int] | None = None
        self.mean = 0.0
        self.seen_at: list[int] = []  # the length of the history at each proposal; not saved

    @property
    def proposal_form(self) -> SafeForm:
        return "two-sided"

    @property
    def lookahead(self) -> int:
        return WINDOW - ROWS

    def propose(self) -> Genes:
        self.seen_at.append(len(self.history))
        moves = self.generator.integers(-2, 3, size=(ROWS, len(self.space)))
        genes = self.sample(ROWS) if self.top is None else np.array([self.top]) + moves
        return self.rescaling(genes, self.generator)

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        for row, score in zip(genes, scores, strict=True):
            if self.top is None or score > self.mean:
                self.top = row.tolist()
            self.mean = 0.5 * (self.mean + score)

    def memory(self) -> dict[str, Any]:
        return {"top": self.top, "mean": self.mean}

    def restore(self, memory: Mapping[str, Any]) -> None:
        self.top = memory["top"]
        self.mean = memory["mean"]
