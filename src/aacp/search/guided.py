"""GuidedEvolution, the default search: evolution proposes, a model of all that was told picks.

A generation of evolution is cheap and an evaluation is not. So every step breeds a few hundred offspring of the best
structures known, and only the one that is expected to improve most on them is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aacp.errors import InvalidOption
from aacp.search.gaussian import GaussianProcess, Kernel, Matrix
from aacp.search.history import Candidate
from aacp.search.rescaling import Genes
from aacp.search.ridge import RidgeRegression
from aacp.search.searcher import Searcher
from aacp.search.seeds import seeds
from aacp.search.variation import crossed, mutated, transferred

MEMORY = 400  # observations the process is fitted to, the best ones: its cost grows with their cube
GROWTH = 1.35  # of the data before the kernel is chosen anew
PARENTS = 15
FRESH = (0.1, 0.0)  # share of random vectors among the offspring of each round; in the second, none would win
SCORE_TRUST = 0.25  # in a candidate's own score when one is recommended; the rest in the model
RIDGE_GROUPS, RIDGE_EVALUATIONS = 40, 200  # beyond both, the ridge model is better where groups do not couple
APART = 3  # genes in which the members of a batch differ at least


@dataclass(frozen=True)
class GuidedEvolutionSettings:
    """The settings of a guided search."""

    batch: int = 1  # structures per step, for parallel workers; five cost little
    random: int = 3  # vectors to begin with, beside the analytic shapes
    offspring: int = 200  # per round

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise InvalidOption(f"{name} is {value}, but a guided search needs at least 1. Try the default.")


class GuidedEvolution(Searcher[GuidedEvolutionSettings]):
    """The paper's kind of operators propose, a Gaussian process picks by expected improvement."""

    settings_type = GuidedEvolutionSettings

    def begin(self) -> None:
        self._full = self.space.counts(self.space.levels - 1)
        self._kernel: Kernel | None = None
        self._use_ridge = False
        self._fitted = 0  # observations that both were chosen on

    def propose(self) -> Genes:
        if not len(self.history):
            begin = [self.start, seeds(self.rescaling, self.generator), self.sample(self.settings.random)]
            return self.rescaling(np.concatenate(begin), self.generator)
        if len(self.history) >= GROWTH * self._fitted:
            self._choose_model()
        return self._apart(self._ranked(self._model()))

    def _ranked(self, model: GaussianProcess | RidgeRegression) -> Genes:
        """Offspring of the best by the model, then of the most promising of these; the most promising first."""
        own = model.fitted[: len(self._observed())]
        observed = self._counts_of(self._observed())
        parents = self.space.genes(observed[np.argsort(-own, kind="stable")[:PARENTS]])
        pool, gains = parents[:0], np.zeros(0)
        for fresh in FRESH:
            offspring = self._bred(parents, int(fresh * self.settings.offspring))
            offspring = offspring[self.unseen(offspring)]
            gain = log_expected_improvement(*model.predict(self._widths(offspring)), float(own.max()))
            pool, gains = np.concatenate([pool, offspring]), np.concatenate([gains, gain])
            order = np.argsort(-gains, kind="stable")
            parents = np.concatenate([pool[order], parents])[:PARENTS]
        return pool[order]

    def _bred(self, parents: Genes, fresh: int) -> Genes:
        """Offspring of drawn parents, half by moving width, half crossed and mutated, and `fresh` random vectors."""
        generator, count = self.generator, self.settings.offspring - fresh
        half = count // 2
        mothers, fathers = parents[generator.integers(len(parents), size=(2, count))]
        mixed = mutated(crossed(mothers[half:], fathers[half:], generator), 1.5 / len(self.space), generator)
        genes = np.concatenate([transferred(mothers[:half], generator), mixed, self.sample(fresh)])
        return self.rescaling(genes, generator)

    def _apart(self, genes: Genes) -> Genes:
        """The first rows of the batch, each unlike those before it."""
        chosen: list[Genes] = []
        for row in genes:
            if all((row != other).sum() >= APART for other in chosen):
                chosen.append(row)
            if len(chosen) == self.settings.batch:
                break
        return np.array(chosen, dtype=np.int64).reshape(-1, len(self.space))

    # -- the model ----------------------------------------------------------------------------------------------------

    def _choose_model(self) -> None:
        """Choose the kernel anew and, with many groups and observations, the model that explains them better."""
        process = GaussianProcess(*self._data())
        self._kernel, self._fitted = process.kernel, len(self.history)
        many = len(self.space) > RIDGE_GROUPS and len(self.history) > RIDGE_EVALUATIONS
        self._use_ridge = many and RidgeRegression(*self._data()).evidence > process.evidence

    def _model(self) -> GaussianProcess | RidgeRegression:
        """A model of the best observations, in the order of `_observed`, and of the lessons behind them."""
        return RidgeRegression(*self._data()) if self._use_ridge else GaussianProcess(*self._data(), self._kernel)

    def _data(self) -> tuple[Matrix, Matrix]:
        """Widths and scores of what the model is to explain."""
        told = [*self._observed(), *self.prior]
        return self._counts_of(told) / self._full, np.array([candidate.score for candidate in told])

    def _observed(self) -> list[Candidate]:
        return self.history.top(MEMORY)

    def _counts_of(self, candidates: Sequence[Candidate]) -> NDArray[np.int64]:
        return np.array([candidate.structure.counts for candidate in candidates], dtype=np.int64)

    def _widths(self, genes: Genes) -> Matrix:
        """Widths as fractions of the full ones."""
        return self.space.counts(genes) / self._full

    @property
    def recommended(self) -> Candidate | None:
        """The candidate with the largest quarter of its score plus three quarters of what the model thinks of it."""
        if not len(self.history):
            return None
        observed = self._observed()
        means = self._model().fitted[: len(observed)]
        trust = [
            SCORE_TRUST * known.score + (1 - SCORE_TRUST) * mean for known, mean in zip(observed, means, strict=True)
        ]
        return observed[int(np.argmax(trust))]

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        """All it learns is in the history."""

    def memory(self) -> dict[str, Any]:
        kernel = asdict(self._kernel) if self._kernel else None
        return {"kernel": kernel, "use_ridge": self._use_ridge, "fitted": self._fitted}

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._kernel = Kernel(**memory["kernel"]) if memory["kernel"] else None
        self._use_ridge, self._fitted = memory["use_ridge"], memory["fitted"]


def log_expected_improvement(means: Matrix, deviations: Matrix, best: float) -> Matrix:
    """The logarithm of E[max(0, score - best)] of normal scores, exact far below the best as well."""
    z = (means - best) / deviations
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    upper = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])
    with np.errstate(divide="ignore"):
        near = np.log(np.maximum(density + z * upper, 0))
    far = -0.5 * z**2 - 0.5 * math.log(2 * math.pi) - 2 * np.log(np.maximum(np.abs(z), 1))
    return np.asarray(np.log(deviations) + np.where(z > -5, near, far))
