"""Searcher: what every search method is: `ask` for structures, `tell` their scores, `best`, `state`.

A method proposes a generation of gene vectors and absorbs their scores; this class sees to the rest: that no structure
is evaluated twice, that scores may come in any order, and that a search resumed from JSON goes on as if never stopped.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from aacp.cost.budget import Budget
from aacp.errors import InvalidOption, InvalidStructure, RunMismatch
from aacp.search.history import Candidate, History
from aacp.search.rescaling import Genes, Rescaling
from aacp.search.transfer import closest, warm_starts
from aacp.space import SearchSpace
from aacp.structure import Structure

Settings = TypeVar("Settings")
Self = TypeVar("Self", bound="Searcher[Any]")

PATIENCE = 200  # generations in a row without a new structure, after which a method has nothing more to ask


class Searcher(ABC, Generic[Settings]):
    """A search in progress: a method, its settings, its random generator and all it was told."""

    settings_type: ClassVar[type[Any]]

    def __init__(
        self,
        space: SearchSpace,
        budget: Budget,
        seed: int = 0,
        settings: Settings | None = None,
        start: Sequence[Structure] = (),
        known: History | None = None,
    ) -> None:
        """`start` are structures to begin with, beside the method's own.

        `known` is what searches of the same network under other budgets were told: the best of those that cost about
        as much are rescaled to begin with, and a method with a model of the scores learns from them.
        """
        self.space, self.budget, self.seed = space, budget, seed
        self.settings: Settings = self.settings_type() if settings is None else settings
        self.rescaling = Rescaling(space, budget)
        self.history = History()
        self.generation = -1  # of the structures asked for last; 0 is the first
        self._generator = np.random.default_rng(seed)
        self._lessons = closest(known or History(), budget)
        begin = [*start, *(candidate.structure for candidate in warm_starts(self._lessons))]
        self._start = np.array([space.genes(space.snap(s)) for s in begin], dtype=np.int64).reshape(-1, len(space))
        self._trials: Genes = np.zeros((0, len(space)), dtype=np.int64)
        self._pending: dict[Structure, int] = {}
        self._asked = 0
        self._begin()

    # -- what a method adds -------------------------------------------------------------------------------------------

    @abstractmethod
    def _begin(self) -> None:
        """Set up what the method remembers beyond the history."""

    @abstractmethod
    def _propose(self) -> Genes:
        """The vectors whose scores the next generation needs; none if the method is at its end."""

    @abstractmethod
    def _absorb(self, genes: Genes, scores: Sequence[float]) -> None:
        """Learn from a generation: the vectors proposed, in the same order, and their scores."""

    @abstractmethod
    def _memory(self) -> dict[str, Any]:
        """What the method knows beyond the history, as JSON."""

    @abstractmethod
    def _remember(self, memory: Mapping[str, Any]) -> None:
        """Restore what `_memory` gave."""

    # -- ask and tell -------------------------------------------------------------------------------------------------

    def ask(self) -> list[Structure]:
        """Structures to evaluate, new and within the budget, in any order; none if the search has come to its end.

        Until all of them are told, asking again returns those still missing.
        """
        for _ in range(PATIENCE):
            if self._pending:
                return list(self._pending)
            self._trials = self._propose()
            if not len(self._trials):
                return []
            self.generation += 1
            new = self._trials[self._unseen(self._trials)]
            self._pending = {self.space.structure(row): self._asked + i for i, row in enumerate(new)}
            self._asked += len(new)
            self._complete()
        return []

    def tell(self, results: Iterable[tuple[Structure, float]]) -> list[Candidate]:
        """Take scores (higher is better) of structures that were asked for, in any order, all at once or in parts."""
        told = []
        for structure, score in results:
            if structure not in self._pending:
                raise InvalidStructure(f"{structure} is not awaiting a score. Tell each structure of `ask` once.")
            if not math.isfinite(score):
                raise InvalidOption(
                    f"The score of {structure} is {score}. A score is a finite number, higher is better."
                )
            told.append(Candidate(self._pending.pop(structure), self.generation, structure, float(score)))
            self.history.add(told[-1])
        self._complete()
        return told

    def _complete(self) -> None:
        if not self._pending and len(self._trials):
            trials, self._trials = self._trials, self._trials[:0]
            self._absorb(trials, [self._score(row) for row in trials])

    def _score(self, genes: Genes) -> float:
        candidate = self.history.find(self.space.counts(genes).tolist())
        assert candidate is not None
        return candidate.score

    def _unseen(self, genes: Genes) -> NDArray[np.bool_]:
        """Which rows were never evaluated and are not repeated from a row above."""
        rows = [tuple(row) for row in self.space.counts(genes).tolist()]
        first = {row: position for position, row in reversed(list(enumerate(rows)))}
        return np.array([first[row] == i and self.history.find(row) is None for i, row in enumerate(rows)], dtype=bool)

    @property
    def is_between_generations(self) -> bool:
        """Whether everything asked for was told."""
        return not self._pending

    @property
    def best(self) -> Candidate | None:
        """The best ever told."""
        # Paper: Alg. 2 answers from the last population, which reinitialisation may have stripped of its best.
        return self.history.best

    @property
    def recommended(self) -> Candidate | None:
        """What the method would choose: the best, unless it knows how far a score can be trusted."""
        return self.best

    def _sample(self, count: int) -> Genes:
        """Vectors drawn evenly from the space (Eq. 8)."""
        return self._generator.integers(self.space.levels, size=(count, len(self.space)))

    # -- state --------------------------------------------------------------------------------------------------------

    def _question(self) -> dict[str, Any]:
        """What this search is about, to recognise it by, as it reads when it comes back from JSON."""
        limits = [[str(limit), limit.bound] for limit in self.budget.limits]
        settings = json.loads(json.dumps(vars(self.settings)))
        choices = [list(choice) for choice in self.space.choices]
        method = type(self).__name__
        return {"method": method, "settings": settings, "seed": self.seed, "choices": choices, "limits": limits}

    def state(self) -> dict[str, Any]:
        """All there is to know, as JSON, generator included."""
        return {
            **self._question(),
            "start": self._start.tolist(),
            "lessons": [candidate.to_json() for candidate in self._lessons],
            "generation": self.generation,
            "asked": self._asked,
            "generator": self._generator.bit_generator.state,
            "trials": self._trials.tolist(),
            "pending": [[list(structure), number] for structure, number in self._pending.items()],
            "history": [candidate.to_json() for candidate in self.history],
            "memory": self._memory(),
        }

    @classmethod
    def from_state(cls: type[Self], space: SearchSpace, budget: Budget, state: Mapping[str, Any]) -> Self:
        """The search that `state` was taken from; it goes on exactly as that one would have."""
        same = state["method"] == cls.__name__
        settings = cls.settings_type(**state["settings"]) if same else None
        search = cls(space, budget, state["seed"], settings)
        search.resume(state)
        return search

    def resume(self, state: Mapping[str, Any]) -> None:
        """Take up where `state` was taken, which must be of the same method, settings, space and budget."""
        for name, mine in self._question().items():
            if state[name] != mine:
                raise RunMismatch(
                    f"The saved search has {name} {state[name]!r}, but this one has {mine!r}. "
                    "Resume with what the run was started with, or choose another folder."
                )
        self._generator.bit_generator.state = state["generator"]
        self._start = np.array(state["start"], dtype=np.int64).reshape(-1, len(self.space))
        self._lessons = [Candidate.from_json(lesson) for lesson in state["lessons"]]
        self._trials = np.array(state["trials"], dtype=np.int64).reshape(-1, len(self.space))
        self.generation, self._asked = state["generation"], state["asked"]
        self._pending = {Structure(counts): number for counts, number in state["pending"]}
        self.history = History(map(Candidate.from_json, state["history"]))
        self._remember(state["memory"])
