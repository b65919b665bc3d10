"""Tournament: a genetic algorithm with seeds, two-sided rescaling and no duplicates, as `ide+` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aacp.errors import InvalidOption
from aacp.search.population import Population
from aacp.search.rescaling import Genes, SafeForm
from aacp.search.searcher import Searcher
from aacp.search.seeds import seeds
from aacp.search.variation import crossed, mutated, nudged


@dataclass(frozen=True)
class TournamentSettings:
    """The settings of Tournament."""

    population: int = 10
    rivals: int = 2  # individuals that compete to become a parent

    def __post_init__(self) -> None:
        if self.population < 1 or self.rivals < 1:
            raise InvalidOption(
                f"A tournament has {self.rivals} rivals in a population of {self.population}. Give 1 or more of each."
            )


class Tournament(Searcher[TournamentSettings]):
    """Parents are winners of tournaments, children are crossed and mutated, the best of both generations survive."""

    settings_type = TournamentSettings

    def begin(self) -> None:
        self._population = Population.empty(len(self.space))

    @property
    def proposal_form(self) -> SafeForm:
        return "two-sided"

    def propose(self) -> Genes:
        size, generator = self.settings.population, self.generator
        if not len(self._population):
            begin = [self.start, seeds(self.rescaling, generator), self.sample(size)]
            return self.rescaling(np.concatenate(begin)[:size], generator)
        children = crossed(self._winners(size), self._winners(size), generator)
        children = self.rescaling(mutated(children, 1.5 / len(self.space), generator), generator)
        return nudged(children, self.unseen, self.rescaling, generator)

    def _winners(self, count: int) -> Genes:
        # The population is sorted, so that the lowest index wins.
        rivals = self.generator.integers(len(self._population), size=(count, self.settings.rivals))
        return np.asarray(self._population.genes[rivals.min(axis=1)])

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        all_genes = np.concatenate([self._population.genes, genes])
        all_scores = np.concatenate([self._population.scores, scores])
        order = np.argsort(-all_scores, kind="stable")[: self.settings.population]
        self._population = Population.of(all_genes[order], all_scores[order].tolist())

    def memory(self) -> dict[str, Any]:
        return self._population.to_json()

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._population = Population.from_json(memory, len(self.space))
