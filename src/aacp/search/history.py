"""Candidate and History: evaluated structures, and queries over them (best, top, Pareto front, other budgets).

Queries are made for 100,000 candidates: counts and costs are computed in parts, so that their memory does not grow with
the history.
"""

from __future__ import annotations

import hashlib
import heapq
import struct
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aacp.channels.structure import Structure
from aacp.cost.budget import Budget
from aacp.cost.kinds import AnyCost
from aacp.errors import InvalidOption, InvalidStructure, RunMismatch
from aacp.search.pareto import unbeaten
from aacp.user.notebook import html_table
from aacp.user.values import counted, score_text, shown

PART = 4096  # candidates whose counts are made an array at a time
LARGEST = 2**53  # the largest number or count of a candidate that is read from a file
SHOWN = 10  # candidates in the table of a notebook
TOP_KEPT = 512  # this many of the best candidates are kept sorted, more than any method models


@dataclass(frozen=True, slots=True)
class Candidate:
    """An evaluated structure: the `number`-th proposed (from 0), its `generation` (from 0) and its score."""

    number: int
    generation: int
    structure: Structure
    score: float
    images: tuple[int, int] | None = None  # how many images it was scored on, of how many; None: on all

    def to_json(self) -> dict[str, Any]:
        counts = list(self.structure)
        found = {"number": self.number, "generation": self.generation, "counts": counts, "score": self.score}
        return found if self.images is None else {**found, "images": list(self.images)}

    @classmethod
    def from_json(cls, data: Any) -> Candidate:
        """The candidate of a JSON object; anything else is rejected with a RunMismatch."""
        try:
            number, generation, score = data["number"], data["generation"], data["score"]
            structure = Structure(data["counts"])
            widest = max(structure.counts)  # also rejects a structure without counts
            images = _images(data["images"]) if "images" in data else None
        except (KeyError, TypeError, IndexError, ValueError):
            raise _not_a_candidate(data) from None
        are_numbers = type(number) is int and type(generation) is int and type(score) in (float, int)
        if not are_numbers or not (0 <= number <= LARGEST and 0 <= generation <= LARGEST and widest <= LARGEST):
            raise _not_a_candidate(data)
        return cls(number, generation, structure, float(score), images)

    @property
    def is_whole(self) -> bool:
        """Whether it was scored on all images."""
        return self.images is None or self.images[0] == self.images[1]

    @property
    def rank(self) -> tuple[bool, float, int]:
        """A sort key from best to worst; of equal scores, the structure proposed first is better.

        Candidates that were scored on all images come before those that were scored on few.
        """
        return not self.is_whole, -self.score, self.number

    @property
    def fingerprint(self) -> int:
        """A number of 128 bits that differs if any part of the candidate differs."""
        counts = self.structure.counts
        content = struct.pack(f"<{2 + len(counts)}qd", self.number, self.generation, *counts, self.score)
        content += b"" if self.images is None else struct.pack("<2q", *self.images)
        return int.from_bytes(hashlib.blake2b(content, digest_size=16).digest(), "big")


def _images(data: Any) -> tuple[int, int]:
    """How many images a score was measured on, of how many; anything else raises a ValueError."""
    few, whole = data
    if type(few) is not int or type(whole) is not int or not 0 < few <= whole <= LARGEST:
        raise ValueError
    return few, whole


def _not_a_candidate(data: Any) -> RunMismatch:
    return RunMismatch(
        f"{shown(data)} is not a candidate of a search, which has a number, a generation, counts and a score. Restore "
        "the file, or remove this line: the search then evaluates the structure again."
    )


class History:
    """Every candidate of a search, each structure once, in the order of proposal."""

    def __init__(self, candidates: Iterable[Candidate] = ()) -> None:
        self.best: Candidate | None = None  # the highest score; of equals, the structure proposed first
        self._candidates: list[Candidate] = []
        self._by_counts: dict[tuple[int, ...], Candidate] = {}
        self._top: list[Candidate] = []
        for candidate in candidates:
            self.add(candidate)

    @classmethod
    def merged(cls, histories: Iterable[History]) -> History:
        """The candidates of several searches, numbered from 0.

        Of a structure evaluated several times, the first score on all images counts, or else the first.
        """
        chosen: dict[tuple[int, ...], Candidate] = {}
        for history in histories:
            for known in history:
                earlier = chosen.setdefault(known.structure.counts, known)
                if known.is_whole and not earlier.is_whole:
                    chosen[known.structure.counts] = replace(earlier, score=known.score, images=known.images)
        return cls(replace(known, number=number) for number, known in enumerate(chosen.values()))

    def add(self, candidate: Candidate) -> None:
        counts = candidate.structure.counts
        if counts in self._by_counts:
            raise InvalidOption(f"{candidate.structure} is in this history already. Add every structure once.")
        if self._candidates and len(counts) != len(self._candidates[0].structure):
            raise InvalidStructure(
                f"{candidate.structure} has {len(counts)} counts, but the structures of this history have "
                f"{len(self._candidates[0].structure)}. Keep the candidates of one network in one history."
            )
        # Sorted by number, not by arrival: the speed of workers must not change the result.
        if not self._candidates or candidate.number > self._candidates[-1].number:
            self._candidates.append(candidate)
        else:
            insort(self._candidates, candidate, key=lambda known: known.number)
        self._by_counts[counts] = candidate
        if self.best is None or candidate.rank < self.best.rank:
            self.best = candidate
        self._add_to_top(candidate)

    def _add_to_top(self, candidate: Candidate) -> None:
        if len(self._top) == TOP_KEPT and candidate.rank > self._top[-1].rank:
            return
        insort(self._top, candidate, key=lambda known: known.rank)
        del self._top[TOP_KEPT:]

    def __len__(self) -> int:
        return len(self._candidates)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._candidates)

    def __getitem__(self, position: int) -> Candidate:
        return self._candidates[position]

    def __repr__(self) -> str:
        best = "" if self.best is None else f", best {score_text(self.best.score)} (number {self.best.number})"
        return f"<History of {counted(len(self), 'candidate')}{best}>"

    def _repr_html_(self) -> str:
        """A table of the best candidates, for notebooks."""
        best = self.top(SHOWN)
        rows = [(each.number, each.generation, score_text(each.score), list(each.structure)) for each in best]
        caption = f"The best {len(best)} of {counted(len(self), 'candidate')}"
        return html_table(caption, ("number", "generation", "score", "kept"), rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self._candidates == other._candidates

    __hash__ = None  # type: ignore[assignment]

    def find(self, counts: Iterable[int]) -> Candidate | None:
        """The candidate with these counts, if it was evaluated."""
        return self._by_counts.get(counts.counts if isinstance(counts, Structure) else tuple(counts))

    def top(self, count: int) -> list[Candidate]:
        """The `count` best candidates, best first."""
        if count <= len(self._top) or len(self._top) == len(self):
            return self._top[:count]
        return heapq.nsmallest(count, self._candidates, key=lambda candidate: candidate.rank)

    @property
    def whole(self) -> History:
        """The candidates that were scored on all images."""
        kept = [candidate for candidate in self if candidate.is_whole]
        return self if len(kept) == len(self) else History(kept)

    def counts_in_parts(self) -> Iterator[NDArray[np.int64]]:
        """The counts of all candidates in their order, some thousand rows at a time."""
        for start in range(0, len(self), PART):
            rows = [candidate.structure.counts for candidate in self._candidates[start : start + PART]]
            size = len(rows) * len(rows[0])
            yield np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=size).reshape(len(rows), -1)

    def costs(self, costs: Sequence[AnyCost]) -> NDArray[np.float64]:
        """The costs of all candidates in their order: one row for each candidate, one column for each cost."""
        rows = [[np.asarray(cost(counts), dtype=np.float64) for cost in costs] for counts in self.counts_in_parts()]
        if not rows or not costs:
            return np.zeros((len(self), len(costs)))
        return np.concatenate([np.stack(columns, axis=1) for columns in rows])

    @property
    def scores(self) -> NDArray[np.float64]:
        """The scores of all candidates in their order."""
        return np.array([candidate.score for candidate in self], dtype=np.float64)

    def pareto(self, costs: Sequence[AnyCost]) -> list[Candidate]:
        """The Pareto front of score and `costs`: candidates that no other dominates, best score first.

        Candidates that were scored on few images only are left out, as in `within` and `rebudget`.
        """
        whole = self.whole
        stays = unbeaten(np.concatenate([-whole.scores[:, None], whole.costs(costs)], axis=1))
        kept = [whole[int(place)] for place in np.flatnonzero(stays)]
        return sorted(kept, key=lambda candidate: candidate.rank)

    def within(self, budget: Budget) -> list[Candidate]:
        """The candidates that meet a budget, best first."""
        whole = self.whole
        fits = [budget.feasible(counts) for counts in whole.counts_in_parts()]
        kept = [whole[int(place)] for place in np.flatnonzero(np.concatenate(fits))] if fits else []
        return sorted(kept, key=lambda candidate: candidate.rank)

    def rebudget(self, budget: Budget) -> Candidate | None:
        """The best evaluated structure that meets another budget, or None. A new search can start from it."""
        return next(iter(self.within(budget)), None)
