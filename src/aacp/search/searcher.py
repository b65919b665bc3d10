"""Searcher: the interface of every search method: `ask` for structures, `tell` their scores, `best`, `state`.

A method proposes a generation of gene vectors and learns from their scores. The class does the rest: no structure is
evaluated twice, scores may arrive in any order, and a search resumed from JSON continues as if it had never stopped.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget
from aacp.errors import InvalidStructure
from aacp.search.history import Candidate, History
from aacp.search.ledger import Ledger
from aacp.search.outstanding import Proposal
from aacp.search.rescaling import Genes, Rescaling, SafeForm
from aacp.search.state import SearchState, damaged_state
from aacp.search.transfer import closest, warm_starts
from aacp.user.values import counted, finite_score, seed_number

Settings = TypeVar("Settings")
Self = TypeVar("Self", bound="Searcher[Any]")

MAX_STALE_GENERATIONS = 200  # a search ends after this many generations in a row without a new structure
MAX_LISTED = 10_000  # of a space of at most this size all structures are listed, to see whether there is a new one left


@dataclass(frozen=True)
class NoSettings:
    """The settings of a method that has none."""


class Searcher(ABC, Generic[Settings]):
    """A search in progress: a method with its settings, its random generator and every score reported to it.

    A subclass is a search method. It defines five methods: `begin`, `propose`, `learn`, `memory` and `restore`. The
    class goes wherever the name of a built-in method goes: `searcher(HillClimber, space, budget)`,
    `run_search(HillClimber(space, budget, seed=1), ...)`, `Plan(method=HillClimber)`.

    ```python
    import numpy as np
    import aacp

    class HillClimber(aacp.Searcher):
        "Moves every gene of the best structure so far by at most one step, and keeps what scores higher."

        def begin(self):
            self.top = None  # genes of the best structure so far
            self.top_score = None

        def propose(self):
            if self.top is None:
                genes = np.concatenate([self.start, self.sample(1)])[:1]
            else:
                genes = self.top + self.generator.integers(-1, 2, size=(1, len(self.space)))
            return self.rescaling(genes, self.generator)

        def learn(self, genes, scores):
            if self.top is None or scores[0] > self.top_score:
                self.top, self.top_score = genes[0], scores[0]

        def memory(self):
            return {"top": None if self.top is None else self.top.tolist(), "top_score": self.top_score}

        def restore(self, memory):
            self.top = None if memory["top"] is None else np.array(memory["top"])
            self.top_score = memory["top_score"]
    ```

    Genes: a structure is a row of integers, one per gene. A gene sets one group, or several groups that are tied. Gene
    value 0 is the smallest choice and `space.levels - 1` the full width; `space.counts` and `space.genes` convert to
    and from counts of units.

    Attributes for subclasses:
        space, budget, seed: as given.
        settings: an instance of `settings_type`, a frozen dataclass whose fields are JSON values. A method without
            settings leaves `settings_type` alone.
        rescaling: `rescaling(genes, generator)` makes any rows legal, within the budget, and as wide as it allows.
        generator: the only source of randomness a method may use. Its state is saved with the search.
        history: every candidate evaluated so far.
        start: genes of structures to propose first: those given and, of `known`, those that suit the budget.
        prior: candidates of earlier searches with similar costs, for methods that model the scores.

    Saving and resuming: `state` holds everything as JSON, `checkpoint` all but the history. A method adds what it keeps
    in attributes of its own, as the dictionary that `memory` returns; `restore` receives an equal dictionary after a
    resume. Anything that `memory` leaves out is as `begin` set it. `history`, `start`, `prior` and `generator` are
    saved for you.

    Parts of a generation: a method whose proposals are parts of one generation also overrides `begins_generation`.

    Proposing ahead: a method that need not wait for the scores of a generation before it proposes the next overrides
    `lookahead`, so that many workers are kept busy. `outstanding` then holds what it has proposed before.

    Small spaces: a method that only proposes structures which use the budget up overrides `proposal_form`, so that its
    search ends as soon as all of them are known.
    """

    settings_type: ClassVar[type[Any]] = NoSettings

    def __init__(
        self,
        space: SearchSpace,
        budget: Budget,
        seed: int = 0,
        settings: Settings | None = None,
        start: Sequence[Structure] = (),
        known: History | None = None,
    ) -> None:
        """Start a search.

        Args:
            space: the legal structures.
            budget: the limits that every proposed structure meets.
            seed: the seed of the search's random generator.
            settings: the settings of the method, by default those of `settings_type()`.
            start: structures to evaluate first, beside the method's own.
            known: candidates that searches of the same network under other budgets have evaluated. The best of those
                with similar costs are scaled to the budget and evaluated first; a method with a model learns from them.
        """
        self.space = space
        self.budget = budget
        self.seed = seed_number(seed)
        self.settings: Settings = self.settings_type() if settings is None else settings
        self.rescaling = Rescaling(space, budget)
        self.images: tuple[int, int] | None = None  # how many images scores are measured on, of how many; None: all
        self.generation = -1  # the generation of the structures that `ask` returned last; the first generation is 0
        self.generator = np.random.default_rng(self.seed)
        self.prior = closest(known or History(), budget)
        given = np.array([space.genes(space.snap(s)) for s in start], dtype=np.int64).reshape(-1, len(space))
        self.start = np.concatenate([given, warm_starts(self.prior, self.rescaling)])
        self._ledger = Ledger(space)
        self._tried_in_vain = -1  # the number of evaluations after which nothing new could be proposed ahead
        self.begin()

    # -- what a method defines ----------------------------------------------------------------------------------------

    @abstractmethod
    def begin(self) -> None:
        """Set up the attributes that the method keeps beside the history. Called at the end of `__init__`."""

    @abstractmethod
    def propose(self) -> Genes:
        """The next generation, one row of genes per structure; no rows if the search has ended.

        Rows must be legal and within the budget, which `self.rescaling` ensures. Rows that were evaluated before are
        allowed: they are not evaluated again, and `learn` receives their known scores.
        """

    @abstractmethod
    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        """Receive a generation: the rows that `propose` returned, in the same order, and their scores."""

    @abstractmethod
    def memory(self) -> dict[str, Any]:
        """The attributes that `begin` set up, as a dictionary of JSON values (arrays as lists)."""

    @abstractmethod
    def restore(self, memory: Mapping[str, Any]) -> None:
        """Set the attributes from what `memory` returned, after it was written to JSON and read back."""

    @property
    def begins_generation(self) -> bool:
        """Whether the next proposal begins a generation; a method that proposes one in parts overrides this."""
        return True

    @property
    def lookahead(self) -> int:
        """How many structures may still lack a score when the next are proposed; 0: one generation after another.

        Scores are then used in the order of proposal, so that the search depends on this number, but not on the order
        in which evaluations are complete.
        """
        return 0

    @property
    def proposal_form(self) -> SafeForm:
        """The form of rescaling whose results are all that the method proposes; "shrink": all within the budget.

        In a small space the search ends when every such structure is known.
        """
        return "shrink"

    # -- what a method may use ----------------------------------------------------------------------------------------

    def sample(self, count: int) -> Genes:
        """Rows drawn uniformly from the space (Eq. 8); `rescaling` brings them within the budget."""
        return self.generator.integers(self.space.levels, size=(count, len(self.space)))

    def unseen(self, genes: Genes) -> NDArray[np.bool_]:
        """For each row, whether it was never proposed and does not repeat a row above it."""
        return self._ledger.unseen(genes)

    @property
    def history(self) -> History:
        """Every candidate evaluated so far."""
        return self._ledger.history

    @property
    def outstanding(self) -> list[Structure]:
        """The structures that were proposed and are not in the history yet, in the order of proposal."""
        return self._ledger.outstanding.structures

    # -- ask and tell -------------------------------------------------------------------------------------------------

    def ask(self) -> list[Structure]:
        """Structures to evaluate, new and within the budget; empty if the search has ended.

        They may be evaluated in any order. `ask` returns those that are still missing, and new ones as soon as the
        method can propose them: when all have a score, or earlier if it looks ahead.
        """
        self._propose_ahead()
        return self._ledger.outstanding.pending

    def tell(self, results: Iterable[tuple[Structure, float]]) -> list[Candidate]:
        """Report scores (higher is better) of structures that `ask` returned, in any order, all at once or in parts."""
        candidates = []
        for structure, score in results:
            reported = self._ledger.outstanding.report(structure, finite_score(score), self.images)
            candidates.append(reported.candidate)
            if not self.lookahead:
                self._add(reported)
            while self.lookahead and (first := self._ledger.outstanding.first) and first.score is not None:
                self._propose_ahead()  # what is proposed next must not depend on how many scores are reported at once
                self._add(first)
        return candidates

    def _add(self, proposal: Proposal) -> None:
        """Move a proposal that has a score to the history."""
        self._ledger.add_scored(proposal)
        self._learn_finished()

    def _propose_ahead(self) -> None:
        """Propose until more than `lookahead` structures are outstanding, or nothing new is found."""
        last = self.generation + MAX_STALE_GENERATIONS
        while len(self._ledger.outstanding) <= self.lookahead and not self._is_waiting:
            begins_generation = self.begins_generation
            if self.generation >= last or not len(genes := self._checked_proposal()):
                self._tried_in_vain = len(self.history)
                return
            self.generation += begins_generation
            new = self._ledger.add_generation(genes, self.generation)
            self._learn_finished()
            if new:
                last = self.generation + MAX_STALE_GENERATIONS
            elif self._is_exhausted:
                last = self.generation

    @property
    def _is_exhausted(self) -> bool:
        """Whether every structure that the method can propose was proposed; False if the space is too large to tell."""
        return bool(self._listed) and not any(map(self._ledger.is_new, self._listed))

    @cached_property
    def _listed(self) -> list[tuple[int, ...]]:
        """The counts of every structure that the method can propose; none if the space is too large to list."""
        if self.space.size > MAX_LISTED:
            return []
        return [*map(tuple, self.space.counts(self.rescaling.results(self.proposal_form)).tolist())]

    def _checked_proposal(self) -> Genes:
        """The rows that the method proposes; illegal ones are rejected, so that a mistake in it shows at once."""
        genes = self.propose()
        name = f"{type(self).__name__}.propose"
        if genes.ndim != 2 or genes.shape[1] != len(self.space) or genes.dtype.kind != "i":
            raise InvalidStructure(
                f"{name} returned {genes.dtype} of shape {genes.shape}. Return a matrix of integers with "
                f"{counted(len(self.space), 'column')}, one per gene."
            )
        legal = ((genes >= 0) & (genes < self.space.levels)).all(axis=1)
        if not legal.all() or not self.budget.feasible(self.space.counts(genes)).all():
            raise InvalidStructure(
                f"{name} returned a row outside the space or the budget. Return self.rescaling(genes, self.generator)."
            )
        return genes

    @property
    def _is_waiting(self) -> bool:
        """Whether nothing new was found with the scores that are known, so that more scores are needed."""
        return len(self._ledger.outstanding) > 0 and self._tried_in_vain == len(self.history)

    def _learn_finished(self) -> None:
        """Let the method learn from each generation, in order, as soon as every row has a score."""
        for genes, scores in self._ledger.pop_finished():
            self.learn(genes, scores)

    @property
    def proposed(self) -> int:
        """The number of structures proposed so far, those without a score included."""
        return self._ledger.proposed

    @property
    def finished_generations(self) -> int:
        """The number of generations, from the first, of which every structure is in the history."""
        first = self._ledger.outstanding.first
        return self.generation + self.begins_generation if first is None else first.generation

    @property
    def early(self) -> list[Candidate]:
        """Candidates that are not in the history yet, because a structure that was proposed before has no score."""
        return self._ledger.outstanding.early

    def generation_of(self, structure: Structure) -> int:
        """The generation of a structure that `ask` returned."""
        return self._ledger.outstanding.generation_of(structure)

    @property
    def best(self) -> Candidate | None:
        """The candidate with the highest score so far."""
        # Paper: Alg. 2 returns the best of the last population, whose best may have been lost to reinitialisation.
        return self.history.best

    @property
    def recommended(self) -> Candidate | None:
        """The candidate that the method would choose: the best, unless the method models the noise of scores."""
        return next(iter(self.promising(1)), None)

    def promising(self, count: int) -> list[Candidate]:
        """The candidates that the method would choose, the most promising first."""
        return self.history.top(count)

    # -- state --------------------------------------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        """What must agree for a saved state to belong to this search, as it is after writing and reading JSON."""
        return {
            "method": type(self).__name__,
            "settings": json.loads(json.dumps(vars(self.settings))),
            "seed": self.seed,
            "choices": self.space.to_json(),
            "limits": [[limit.cost.name, limit.bound] for limit in self.budget.limits],
        }

    def checkpoint(self) -> dict[str, Any]:
        """What `resume` needs beside the history, as JSON values. It does not grow with the history."""
        return {
            **self._identity(),
            "start": self.start.tolist(),
            "lessons": [candidate.to_json() for candidate in self.prior],
            "generation": self.generation,
            "generator": self.generator.bit_generator.state,
            "tried_in_vain": self._tried_in_vain,
            **self._ledger.checkpoint(),
            "memory": self.memory(),
        }

    def state(self) -> dict[str, Any]:
        """Everything that `resume` needs, as JSON values: the checkpoint and all scores."""
        history, early = ([each.to_json() for each in part] for part in (self.history, self.early))
        return {**self.checkpoint(), "history": history, "early": early}

    @classmethod
    def from_state(cls: type[Self], space: SearchSpace, budget: Budget, state: Mapping[str, Any]) -> Self:
        """A search that continues exactly as the one that `state` was taken from."""
        same = state["method"] == cls.__name__
        settings = cls.settings_type(**state["settings"]) if same else None
        search = cls(space, budget, state["seed"], settings)
        search.resume(state)
        return search

    def require_same(self, state: SearchState) -> None:
        """Reject a state of another method, or with other settings, another seed, space or budget."""
        state.require_identity(self._identity())

    def resume(self, state: Mapping[str, Any] | SearchState, history: Iterable[Candidate] = ()) -> None:
        """Continue from a saved state, which must be of the same method, settings, seed, space and budget.

        Args:
            state: what `state` or `checkpoint` returned.
            history: the candidates that a checkpoint counts; a state holds its own.
        """
        saved = state if isinstance(state, SearchState) else SearchState.from_json(state)
        self.require_same(saved)
        candidates = tuple(history) if saved.candidates is None else saved.candidates
        fingerprint = saved.require_candidates(candidates)
        try:
            self._take_over(saved, candidates, fingerprint)
        except Exception as error:  # the values of a damaged file can raise anything, also in the method's `restore`
            raise damaged_state(error) from None

    def _take_over(self, saved: SearchState, candidates: Iterable[Candidate], fingerprint: int) -> None:
        self.generator.bit_generator.state = saved.generator
        self.start = np.array(saved.start, dtype=np.int64).reshape(-1, len(self.space))
        self.prior = [Candidate.from_json(candidate) for candidate in saved.lessons]
        self.generation = saved.generation
        self._tried_in_vain = saved.tried_in_vain
        self._ledger.resume(saved, candidates, fingerprint)
        self.restore(saved.memory)
