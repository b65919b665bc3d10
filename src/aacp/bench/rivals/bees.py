"""BeeColony: the artificial bee colony, as in ABCPruner and in its classical form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from aacp.channels.space import SearchSpace
from aacp.errors import InvalidOption
from aacp.search.population import Population
from aacp.search.rescaling import Genes, SafeForm
from aacp.search.searcher import Searcher


@dataclass(frozen=True)
class BeeColonySettings:
    """The settings of BeeColony; the defaults are those of ABCPruner."""

    sources: int = 10  # number of food sources, and of bees in each phase
    limit: int = 5  # unsuccessful trials before a source is abandoned
    genes_per_trial: Literal["all", "one"] = "all"
    rounding: Literal["truncate", "nearest"] = "truncate"
    rescaling: SafeForm = "shrink"

    def __post_init__(self) -> None:
        if self.sources < 2:
            raise InvalidOption(f"A colony has {self.sources} food sources, but needs two to compare. Give 2 or more.")


ABCPRUNER = BeeColonySettings()


def classical(space: SearchSpace, sources: int = 50) -> BeeColonySettings:
    """Karaboga's colony: one gene per trial, nearest integers, sources x groups trials before a source is abandoned."""
    return BeeColonySettings(sources, sources * len(space), "one", "nearest")


class BeeColony(Searcher[BeeColonySettings]):
    """Employed bees search near every food source, onlookers near the good ones, scouts replace exhausted ones.

    A cycle takes two generations, one of employed bees and one of onlookers.
    """

    settings_type = BeeColonySettings

    def begin(self) -> None:
        self._sources = Population.empty(len(self.space))  # ages count unsuccessful trials
        self._visited = np.zeros(0, dtype=np.int64)  # the source that each current trial belongs to
        self._onlookers = False

    def propose(self) -> Genes:
        if not len(self._sources):
            first = np.concatenate([self.start, self.sample(self.settings.sources)])[: self.settings.sources]
            return self._rescaled(first)
        self._visited = self._chosen() if self._onlookers else np.arange(len(self._sources))
        return np.concatenate([self._neighbours(self._visited), self._sources.genes[self._sources.unscored]])

    def _chosen(self) -> NDArray[np.int64]:
        """The sources that onlookers visit, drawn with weights from 0.1 for the worst to 1 for the best."""
        scores = self._sources.scores
        spread = scores.max() - scores.min()
        appeal = 0.1 + 0.9 * ((scores - scores.min()) / spread if spread else np.ones_like(scores))
        return self.generator.choice(len(scores), size=len(scores), p=appeal / appeal.sum())

    def _neighbours(self, visited: NDArray[np.int64]) -> Genes:
        """x + r (x - y) with another source y and r in [-1, 1] for each gene, or for a single one."""
        sources, generator = self._sources.genes, self.generator
        others = (visited + generator.integers(1, len(sources), size=len(visited))) % len(sources)
        here = sources[visited]
        moves = generator.uniform(-1, 1, size=here.shape) * (here - sources[others])
        if self.settings.genes_per_trial == "one":
            moves *= np.arange(here.shape[1]) == generator.integers(here.shape[1], size=(len(here), 1))
        there = np.rint(here + moves) if self.settings.rounding == "nearest" else np.trunc(here + moves)
        return self._rescaled(there.astype(np.int64))

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        if not len(self._sources):
            self._sources = Population.of(genes, scores)
            return
        trials = len(self._visited)
        self._sources.scores[self._sources.unscored] = scores[trials:]
        for source, trial, score in zip(self._visited.tolist(), genes, scores, strict=False):
            self._sources.ages[source] += 1
            if score > self._sources.scores[source]:
                self._sources.replace(source, trial, score)
        if self._onlookers:
            exhausted = self._sources.ages > self.settings.limit
            self._sources.replace(exhausted, self._rescaled(self.sample(int(exhausted.sum()))))
        self._onlookers = not self._onlookers

    def _rescaled(self, genes: Genes) -> Genes:
        return self.rescaling(genes, self.generator, self.settings.rescaling)

    def memory(self) -> dict[str, Any]:
        visited = self._visited.tolist()
        return {"sources": self._sources.to_json(), "visited": visited, "onlookers": self._onlookers}

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._sources = Population.from_json(memory["sources"], len(self.space))
        self._visited = np.array(memory["visited"], dtype=np.int64)
        self._onlookers = memory["onlookers"]
