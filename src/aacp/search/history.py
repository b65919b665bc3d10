"""Candidate and History: evaluated structures, and queries over them (best, top, Pareto front, other budgets)."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aacp.cost.budget import Budget
from aacp.cost.kinds import AnyCost
from aacp.errors import InvalidOption
from aacp.structure import Structure


@dataclass(frozen=True)
class Candidate:
    """An evaluated structure: the `number`-th proposed (from 0), its `generation` (from 0) and its score."""

    number: int
    generation: int
    structure: Structure
    score: float

    def to_json(self) -> dict[str, Any]:
        counts = list(self.structure)
        return {"number": self.number, "generation": self.generation, "counts": counts, "score": self.score}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Candidate:
        return cls(data["number"], data["generation"], Structure(data["counts"]), data["score"])

    @property
    def rank(self) -> tuple[float, int]:
        """A sort key from best to worst; of equal scores, the structure proposed first is better."""
        return -self.score, self.number


class History:
    """Every candidate of a search, each structure once, in the order of proposal."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.best: Candidate | None = None  # the highest score; of equals, the structure proposed first
        self._candidates: list[Candidate] = []
        self._by_counts: dict[tuple[int, ...], Candidate] = {}
        for candidate in candidates:
            self.add(candidate)

    @classmethod
    def merged(cls, histories: Iterable[History]) -> History:
        """The candidates of several searches, numbered from 0; of a structure evaluated several times, the first."""
        found: dict[tuple[int, ...], Candidate] = {}
        for candidate in (candidate for history in histories for candidate in history):
            found.setdefault(candidate.structure.counts, candidate)
        return cls(replace(candidate, number=number) for number, candidate in enumerate(found.values()))

    def add(self, candidate: Candidate) -> None:
        if self.find(candidate.structure) is not None:
            raise InvalidOption(f"{candidate.structure} is in this history already. Add every structure once.")
        # Sorted by number, not by arrival: the speed of workers must not change the result.
        insort(self._candidates, candidate, key=lambda known: known.number)
        self._by_counts[candidate.structure.counts] = candidate
        if self.best is None or candidate.rank < self.best.rank:
            self.best = candidate

    def __len__(self) -> int:
        return len(self._candidates)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._candidates)

    def __getitem__(self, position: int) -> Candidate:
        return self._candidates[position]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._candidates == other._candidates

    __hash__ = None  # type: ignore[assignment]

    def find(self, counts: Iterable[int]) -> Candidate | None:
        """The candidate with these channel counts, if it was evaluated."""
        return self._by_counts.get(tuple(counts))

    def top(self, count: int) -> list[Candidate]:
        """The `count` best candidates, best first."""
        return sorted(self._candidates, key=lambda candidate: candidate.rank)[:count]

    def pareto(self, costs: Sequence[AnyCost]) -> list[Candidate]:
        """The Pareto front of score and `costs`: candidates that no other dominates, best score first."""
        if not self._candidates:
            return []
        counts = np.array([list(candidate.structure) for candidate in self])
        losses = np.stack([[-candidate.score for candidate in self], *(cost(counts) for cost in costs)], axis=1)
        no_worse = (losses[:, None] <= losses[None]).all(axis=2)
        beaten = (no_worse & ~no_worse.T).any(axis=0)
        kept = [candidate for candidate, out in zip(self, beaten, strict=True) if not out]
        return sorted(kept, key=lambda candidate: candidate.rank)

    def rebudget(self, budget: Budget) -> Candidate | None:
        """The best evaluated structure that meets another budget, or None. A new search can start from it."""
        fits = [candidate for candidate in self if budget.feasible(candidate.structure)]
        return min(fits, key=lambda candidate: candidate.rank, default=None)
