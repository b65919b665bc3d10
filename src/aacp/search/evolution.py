"""Improved Differential Evolution, the paper's search (Sec. 3.3, Algorithm 2, Eq. 7-13), and three presets.

- `PAPER` follows the text, corrected where it cannot run: limits joined by "or", trials rescaled after crossover.
- `FIG3` is the one reading that reproduces Fig. 3 (docs/search.md lists the others): the base vector is the best of a
  population of 50, rounding is stochastic, every trial takes a gene of its mutant, and the best is never reinitialised.
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


@dataclass(frozen=True)
class EvolutionSettings:
    """The settings of ImprovedDifferentialEvolution; the defaults are the paper's."""

    population: int = 10  # N
    differential_weight: float = 0.5  # F
    crossover_rate: float = 0.8  # CR
    reinitialise_after: int | None = 4  # R; None is plain differential evolution
    base: Literal["random", "best"] = "random"  # the vector that the difference is added to
    rounding: Literal["floor", "stochastic"] = "floor"
    force_one_gene: bool = False  # whether every trial takes at least one gene of its mutant
    protect_best: bool = False  # whether the best individual (of equals, the first) is never reinitialised
    rescaling: SafeForm = "shrink"
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
FIG3 = replace(PAPER, population=50, base="best", rounding="stochastic", force_one_gene=True, protect_best=True)
IDE_PLUS = replace(FIG3, population=10, reinitialise_after=20, rescaling="two-sided", seeded=True, avoid_known=True)


class ImprovedDifferentialEvolution(Searcher[EvolutionSettings]):
    """IDE: mutation, crossover, selection and reinitialisation of a population, a generation at a time (Alg. 2)."""

    # Paper: Alg. 2 updates individuals one after another. Here a generation is proposed as a whole, so that it can be
    # evaluated in any order and by any number of workers. No difference in results was measurable.

    settings_type = EvolutionSettings

    def begin(self) -> None:
        self._population = Population.empty(len(self.space))

    def propose(self) -> Genes:
        if not len(self._population):
            return self._initialised()
        # Paper: crossover can break the limits that mutation was rescaled to, so the trial is rescaled as well.
        trials = self._rescaled(self._crossed(self._mutated()))
        if self.settings.avoid_known:
            trials = nudged(trials, self.unseen, self.rescaling, self.generator)
        return np.concatenate([trials, self._population.genes[self._population.unscored]])

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        size = len(self._population)
        if not size:
            self._population = Population.of(genes, scores)
            return
        self._population.scores[self._population.unscored] = scores[size:]
        self._select(genes[:size], np.array(scores[:size]))
        self._reinitialise()

    # -- the paper's equations ----------------------------------------------------------------------------------------

    def _initialised(self) -> Genes:
        """X^0, rescaled (Eq. 8 and 9)."""
        chosen = [self.start]
        if self.settings.seeded:
            chosen.append(seeds(self.rescaling, self.generator))
        chosen.append(self.sample(self.settings.population))  # Eq. 8
        return self._rescaled(np.concatenate(chosen)[: self.settings.population])  # Eq. 9

    def _mutated(self) -> Genes:
        """V = X_p + F (X_q - X_r), rescaled (Eq. 10)."""
        p, q, r = self._parents()
        genes = self._population.genes
        mutants = genes[p] + self.settings.differential_weight * (genes[q] - genes[r])  # Eq. 10
        # Paper: Alg. 1 floors, which biases every mutation downward by half a step on average.
        offset = self.generator.random(mutants.shape) if self.settings.rounding == "stochastic" else 0.0
        return self._rescaled(np.floor(mutants + offset).astype(np.int64))

    def _parents(self) -> NDArray[np.int64]:
        """The indices p, q, r of each individual's parents, one column per individual."""
        # Paper: parents are distinct and differ from n, as in every differential evolution; the text does not say so.
        size = len(self._population)
        keys = self.generator.random((size, size))
        np.fill_diagonal(keys, 2.0)
        p, q, r = np.argsort(keys, axis=1)[:, :3].T
        return np.stack([np.full(size, self._population.best) if self.settings.base == "best" else p, q, r])

    def _crossed(self, mutants: Genes) -> Genes:
        """U: each gene from V where rand < CR, from X otherwise (Eq. 11)."""
        from_mutant = self.generator.random(mutants.shape) < self.settings.crossover_rate  # Eq. 11
        if self.settings.force_one_gene:
            forced = self.generator.integers(mutants.shape[1], size=len(mutants))
            from_mutant[np.arange(len(mutants)), forced] = True
        return np.where(from_mutant, mutants, self._population.genes)

    def _select(self, trials: Genes, scores: NDArray[np.float64]) -> None:
        """X becomes U where U is strictly fitter (Eq. 12)."""
        fitter = scores > self._population.scores  # Eq. 12
        self._population.ages += 1
        self._population.replace(fitter, trials[fitter], scores[fitter])

    def _reinitialise(self) -> None:
        """Replace individuals unchanged for R generations by random ones, rescaled (Eq. 13)."""
        if self.settings.reinitialise_after is None:
            return
        stale = self._population.ages >= self.settings.reinitialise_after  # Eq. 13
        if self.settings.protect_best:
            stale[self._population.best] = False
        self._population.replace(stale, self._rescaled(self.sample(int(stale.sum()))))

    def _rescaled(self, genes: Genes) -> Genes:
        return self.rescaling(genes, self.generator, self.settings.rescaling)

    def memory(self) -> dict[str, Any]:
        return self._population.to_json()

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._population = Population.from_json(memory, len(self.space))
