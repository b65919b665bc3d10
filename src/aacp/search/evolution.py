"""Improved Differential Evolution, the paper's search (Sec. 3.3, Algorithm 2, Eq. 7-13), and four presets.

- `PAPER` follows the text, corrected where it cannot run: limits joined by "or", trials rescaled after crossover.
- `RELEASED` is the search as the authors' released code runs it: the base vector is the best of all evaluated
  structures, rounding is to the nearest step, every trial takes a gene of its mutant, and individuals are updated one
  after another.
- `FIG3` is a reading of the text that reproduces Fig. 3: the base vector is the best of a population of 50, rounding is
  stochastic, every trial takes a gene of its mutant, and the best is never reinitialised.
- `IDE_PLUS` is `FIG3` made fit for pruning problems: a population of 10, analytic seeds, two-sided rescaling, no
  structure twice, and reinitialisation after 20 generations instead of 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from aacp.errors import InvalidOption
from aacp.search.population import Population
from aacp.search.rescaling import Genes, SafeForm
from aacp.search.searcher import Searcher
from aacp.search.seeds import seeds
from aacp.search.variation import nudged

Base = Literal["random", "best", "best ever"]  # another individual, the population's best, the best ever evaluated
Rounding = Literal["floor", "nearest", "stochastic"]


@dataclass(frozen=True)
class EvolutionSettings:
    """The settings of ImprovedDifferentialEvolution; the defaults are the paper's."""

    population: int = 10  # N
    differential_weight: float = 0.5  # F
    crossover_rate: float = 0.8  # CR
    reinitialise_after: int | None = 4  # R; None is plain differential evolution
    base: Base = "random"  # the vector that the difference is added to
    rounding: Rounding = "floor"  # how a mutant is brought to whole steps
    one_by_one: bool = False  # whether individuals are updated one after another, or a generation at once
    force_one_gene: bool = False  # whether every trial takes at least one gene of its mutant
    protect_best: bool = False  # whether the best individual (of equals, the first) is never reinitialised
    rescaling: SafeForm = "shrink"  # how a proposal is brought within the budget; "two-sided" also widens it again
    seeded: bool = False  # whether the first population holds analytic shapes beside random vectors
    avoid_known: bool = False  # whether a trial that was evaluated before is changed by a step or two

    def __post_init__(self) -> None:
        if self.population < 4:
            raise InvalidOption(
                f"A population of {self.population} has no three parents for each individual. Give 4 or more."
            )
        if not 0 <= self.differential_weight <= 2:
            raise InvalidOption(
                f"The differential weight lies in [0, 2], but got {self.differential_weight}. Give 0.5, the paper's."
            )
        if not 0 <= self.crossover_rate <= 1:
            raise InvalidOption(
                f"The crossover rate lies in [0, 1], but got {self.crossover_rate}. Give 0.8, the paper's."
            )
        if self.reinitialise_after is not None and self.reinitialise_after < 1:
            raise InvalidOption(f"reinitialise_after is {self.reinitialise_after}. Give 1 or more, or None for never.")


PAPER = EvolutionSettings()
GENERATIONS = 200  # T as the released scripts set it; the paper gives none
RELEASED = replace(PAPER, base="best ever", rounding="nearest", force_one_gene=True, one_by_one=True)
FIG3 = replace(PAPER, population=50, base="best", rounding="stochastic", force_one_gene=True, protect_best=True)
IDE_PLUS = replace(FIG3, population=10, reinitialise_after=20, rescaling="two-sided", seeded=True, avoid_known=True)


class ImprovedDifferentialEvolution(Searcher[EvolutionSettings]):
    """IDE: reinitialisation, mutation, crossover and selection, for a whole population or one by one (Alg. 2)."""

    settings_type = EvolutionSettings

    def begin(self) -> None:
        self._population = Population.empty(len(self.space))
        self._next = 0  # with one_by_one, the individual whose turn it is

    def propose(self) -> Genes:
        if not len(self._population):
            return self._initialised()
        turn = self._turn
        self._reinitialise(turn)
        # Paper: crossover can break the limits that mutation was rescaled to, so the trial is rescaled as well.
        trials = self._rescaled(self._crossed(turn, self._mutated(turn)))
        if self.settings.avoid_known:
            trials = nudged(trials, self.unseen, self.rescaling, self.generator)
        return np.concatenate([trials, self._population.genes[self._population.unscored]])

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        if not len(self._population):
            self._population = Population.of(genes, scores)
            return
        turn = self._turn
        self._population.scores[self._population.unscored] = scores[len(turn) :]
        self._select(turn, genes[: len(turn)], np.array(scores[: len(turn)]))
        if self.settings.one_by_one:
            self._next = (self._next + 1) % len(self._population)

    @property
    def begins_generation(self) -> bool:
        return self._next == 0

    @property
    def proposal_form(self) -> SafeForm:
        return self.settings.rescaling

    @property
    def _turn(self) -> NDArray[np.int64]:
        """The individuals that the next trials compete with."""
        # Paper: Alg. 2 updates individuals one after another. Except for `RELEASED`, a generation is proposed as a
        # whole, so that any number of workers can evaluate it. A trial then does not see what earlier trials of the
        # same generation have found.
        return np.array([self._next]) if self.settings.one_by_one else np.arange(len(self._population))

    # -- the paper's equations ----------------------------------------------------------------------------------------

    def _initialised(self) -> Genes:
        """X^0, rescaled (Eq. 8 and 9)."""
        chosen = [self.start]
        if self.settings.seeded:
            chosen.append(seeds(self.rescaling, self.generator))
        chosen.append(self.sample(self.settings.population))  # Eq. 8
        return self._rescaled(np.concatenate(chosen)[: self.settings.population])  # Eq. 9

    def _mutated(self, turn: NDArray[np.int64]) -> Genes:
        """V = X_p + F (X_q - X_r), rescaled (Eq. 10), for each individual whose turn it is."""
        p, q, r = self._parents(turn)
        genes = self._population.genes
        mutants = self._bases(p) + self.settings.differential_weight * (genes[q] - genes[r])  # Eq. 10
        return self._rescaled(self._rounded(mutants).astype(np.int64))

    def _bases(self, p: NDArray[np.int64]) -> Genes:
        """The vectors that differences are added to: X_p, or for every individual the best."""
        if self.settings.base != "best ever":
            which = p if self.settings.base == "random" else np.full(len(p), self._population.best)
            return np.asarray(self._population.genes[which])
        # The best ever evaluated is kept in the history. The population may lose it to reinitialisation.
        best = self.history.best
        assert best is not None
        return self.space.genes(best.structure)

    def _rounded(self, mutants: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mutants on the grid of whole steps."""
        # Paper: Alg. 1 floors, which biases every mutation downward by a quarter of a step on average (F = 0.5).
        if self.settings.rounding == "floor":
            return np.floor(mutants)
        if self.settings.rounding == "stochastic":
            return np.floor(mutants + self.generator.random(mutants.shape))
        # The released code cuts fractions of a channel off first. With F = 0.5, half a step is then rounded down where
        # a step is an odd number of channels, and to an even number of steps otherwise. A gene of 0 is one step.
        step = self.space.leading_counts(np.zeros(len(self.space), dtype=np.int64))
        channels = np.trunc((mutants + 1) * step)
        return np.asarray(np.rint(channels / step) - 1)

    def _parents(self, turn: NDArray[np.int64]) -> NDArray[np.int64]:
        """The indices p, q, r of the parents, one column for each individual whose turn it is."""
        # Paper: parents are distinct and differ from n, as in every differential evolution; the text does not say so.
        keys = self.generator.random((len(turn), len(self._population)))
        keys[np.arange(len(turn)), turn] = 2.0
        return np.asarray(np.argsort(keys, axis=1)[:, :3].T)

    def _crossed(self, turn: NDArray[np.int64], mutants: Genes) -> Genes:
        """U: each gene from V where rand < CR, from X otherwise (Eq. 11)."""
        from_mutant = self.generator.random(mutants.shape) < self.settings.crossover_rate  # Eq. 11
        if self.settings.force_one_gene:
            forced = self.generator.integers(mutants.shape[1], size=len(mutants))
            from_mutant[np.arange(len(mutants)), forced] = True
        return np.where(from_mutant, mutants, self._population.genes[turn])

    def _select(self, turn: NDArray[np.int64], trials: Genes, scores: NDArray[np.float64]) -> None:
        """X becomes U where U is strictly fitter (Eq. 12)."""
        fitter = scores > self._population.scores[turn]  # Eq. 12
        self._population.ages[turn] += 1
        self._population.replace(turn[fitter], trials[fitter], scores[fitter])

    def _reinitialise(self, turn: NDArray[np.int64]) -> None:
        """Replace individuals unchanged for R generations by random ones, rescaled (Eq. 13)."""
        if self.settings.reinitialise_after is None:
            return
        stale = turn[self._population.ages[turn] >= self.settings.reinitialise_after]  # Eq. 13
        if self.settings.protect_best:
            stale = stale[stale != self._population.best]
        if len(stale):
            self._population.replace(stale, self._rescaled(self.sample(len(stale))))

    def _rescaled(self, genes: Genes) -> Genes:
        return self.rescaling(genes, self.generator, self.settings.rescaling)

    def memory(self) -> dict[str, Any]:
        return {**self._population.to_json(), "next": self._next}

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._population = Population.from_json(memory, len(self.space))
        self._next = memory.get("next", 0)  # older versions wrote none
