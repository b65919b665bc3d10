"""Outstanding: the structures that a method has proposed and that are not in its history yet.

Proposals are rows of genes. They are checked here, and those that a method has not learned from yet are kept as Trials.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget
from aacp.errors import InvalidStructure
from aacp.search.history import Candidate
from aacp.search.rescaling import Genes
from aacp.user.values import counted


@dataclass(frozen=True, slots=True)
class Proposal:
    """A proposed structure: the `number`-th of the search (from 0), its `generation`, and its score once it has one."""

    number: int
    generation: int
    structure: Structure
    score: float | None = None
    images: tuple[int, int] | None = None  # how many images it was scored on, of how many; None: on all

    def to_json(self) -> list[Any]:
        """Counts, number and generation. A score is not saved here: it is in the log, or in the state of the search."""
        return [list(self.structure), self.number, self.generation]

    @classmethod
    def from_json(cls, data: Any, generation: int) -> Proposal:
        """The proposal of a list; those of older versions hold no generation, which then is the given one."""
        counts, number, *own = data
        return cls(int(number), int(own[0]) if own else generation, Structure(counts))

    @property
    def candidate(self) -> Candidate:
        assert self.score is not None
        return Candidate(self.number, self.generation, self.structure, self.score, self.images)


class Outstanding:
    """Proposals in their order, those without a score and those whose score came early."""

    def __init__(self, proposals: Iterable[Proposal] = ()) -> None:
        self._proposals = {each.structure.counts: each for each in proposals}

    def __len__(self) -> int:
        return len(self._proposals)

    def __contains__(self, counts: tuple[int, ...]) -> bool:
        return counts in self._proposals

    @property
    def first(self) -> Proposal | None:
        """The earliest of the proposals."""
        return next(iter(self._proposals.values()), None)

    @property
    def structures(self) -> list[Structure]:
        """All structures."""
        return [each.structure for each in self._proposals.values()]

    @property
    def pending(self) -> list[Structure]:
        """The structures without a score."""
        return [each.structure for each in self._proposals.values() if each.score is None]

    @property
    def early(self) -> list[Candidate]:
        """The structures whose score came before those of earlier proposals."""
        return [each.candidate for each in self._proposals.values() if each.score is not None]

    def generation_of(self, structure: Structure) -> int:
        return self._proposals[structure.counts].generation

    def add(self, proposal: Proposal) -> None:
        self._proposals[proposal.structure.counts] = proposal

    def report(self, structure: Structure, score: float, images: tuple[int, int] | None = None) -> Proposal:
        """Give a structure its score, and say how many images it was measured on, of how many."""
        known = self._proposals.get(structure.counts)
        if known is None or known.score is not None:
            raise InvalidStructure(
                f"{structure} is not awaiting a score. Report each structure that `ask` returned once."
            )
        reported = replace(known, score=score, images=images)
        self._proposals[structure.counts] = reported
        return reported

    def remove(self, proposal: Proposal) -> None:
        del self._proposals[proposal.structure.counts]

    def to_json(self) -> list[Any]:
        return [each.to_json() for each in self._proposals.values()]


class Trials(NamedTuple):
    """A generation that a method has proposed: all its rows, and the number of the first proposal behind it."""

    genes: Genes
    end: int


def read_trials(rows: Any, lengths: Any, proposed: int, groups: int) -> list[Trials]:
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


def checked_rows(genes: Genes, space: SearchSpace, budget: Budget, method: str) -> Genes:
    """Reject rows that are not legal or not within the budget, so that a mistake in a method shows at once."""
    if genes.ndim != 2 or genes.shape[1] != len(space) or genes.dtype.kind != "i":
        raise InvalidStructure(
            f"{method}.propose returned {genes.dtype} of shape {genes.shape}. Return a matrix of integers with "
            f"{counted(len(space), 'column')}, one per group."
        )
    legal = ((genes >= 0) & (genes < space.levels)).all(axis=1)
    if not legal.all() or not budget.feasible(space.counts(genes)).all():
        raise InvalidStructure(
            f"{method}.propose returned a row outside the space or the budget. Return "
            "self.rescaling(genes, self.generator)."
        )
    return genes
