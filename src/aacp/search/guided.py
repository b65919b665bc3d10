"""GuidedEvolution, the default search: evolution proposes structures, a model of the scores picks one.

Offspring are cheap and evaluations are not. So every step breeds a few hundred offspring of the best structures, and
only the one with the largest expected improvement is evaluated.
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
from aacp.search.rescaling import Genes, SafeForm
from aacp.search.ridge import RidgeRegression
from aacp.search.searcher import Searcher
from aacp.search.seeds import seeds
from aacp.search.variation import crossed, mutated, transferred

MAX_OBSERVATIONS = 400  # the model is fitted to the best 400 candidates: its cost grows with the cube of their number
REFIT_GROWTH = 1.35  # the kernel is chosen again when the number of observations has grown by this factor
PARENTS = 15  # the number of structures that offspring are made from
RANDOM_SHARES = (0.1, 0.0)  # random vectors among the offspring of round one and two; in round two none would be picked
CHANCE = 2  # a structure is clearly too bad if this many standard deviations more would not make it the best
OUTLIER = 10  # a score this many times as far below the median as the best is above it counts as an outlier
SCORE_TRUST = 0.25  # weight of a candidate's own score in `recommended`; the model's prediction has the rest
# With more groups and more evaluations than these, a ridge model is tried too: it is better if groups do not interact.
RIDGE_MIN_GROUPS = 40
RIDGE_MIN_EVALUATIONS = 200
STEPS = 8  # a batch is proposed in up to this many steps, each after as many scores
MIN_GENE_DISTANCE = 3  # structures of a step differ in at least this many genes


@dataclass(frozen=True)
class GuidedEvolutionSettings:
    """The settings of GuidedEvolution."""

    batch: int = 1  # structures without a score that are kept proposed, for parallel workers
    random: int = 3  # random structures in the first generation, beside the analytic shapes
    offspring: int = 200  # offspring bred in each of the two rounds of a step

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise InvalidOption(
                    f"{name} is {value}, but a guided search needs at least 1. Leave it out to use the default."
                )


class GuidedEvolution(Searcher[GuidedEvolutionSettings]):
    """Evolutionary search in which a Gaussian process picks the offspring by expected improvement."""

    settings_type = GuidedEvolutionSettings

    def begin(self) -> None:
        self._full = self.space.counts(self.space.levels - 1)
        self._kernel: Kernel | None = None
        self._use_ridge = False
        self._fitted = 0  # number of observations when the kernel and the model were last chosen

    def propose(self) -> Genes:
        if not len(self.history):
            return self._first_generation()
        if len(self.history) >= REFIT_GROWTH * self._fitted:
            self._choose_model()
        found = self._diverse(self._ranked(self._model()))
        return found if len(found) else self._any_structure()

    def _any_structure(self) -> Genes:
        """One random structure, to go on with if all offspring are known; a structure that is new, if one was drawn."""
        drawn = self.rescaling(self.sample(self.settings.offspring), self.generator)
        return np.concatenate([drawn[self.unseen(drawn)], drawn])[:1]

    def _first_generation(self) -> Genes:
        """The structures to start with, analytic shapes and random structures.

        With known candidates, a shape or random structure is left out if its predicted score is clearly too low.
        """
        begin = [self.start, seeds(self.rescaling, self.generator), self.sample(self.settings.random)]
        rows = self.rescaling(np.concatenate(begin), self.generator)
        if not self.prior:
            return rows
        self._choose_model()
        means, deviations = self._model().predict(self._widths(rows))
        is_kept = means + CHANCE * deviations >= means.max()
        is_kept[: len(self.start)] = True
        return np.asarray(rows[is_kept])

    @property
    def proposal_form(self) -> SafeForm:
        return "two-sided"

    @property
    def lookahead(self) -> int:
        """All but the structures of a step, once the first generation has its scores."""
        return self.settings.batch - self._step if self.generation > 0 else 0

    @property
    def _step(self) -> int:
        """The number of structures that are proposed after as many scores."""
        return max(1, self.settings.batch // STEPS)

    def _ranked(self, model: GaussianProcess | RidgeRegression) -> Genes:
        """Offspring of the best structures and then of the most promising offspring, sorted by expected improvement."""
        own = model.fitted[: len(self._observed())]
        observed = self._counts_of(self._observed())
        parents = self.space.genes(observed[np.argsort(-own, kind="stable")[:PARENTS]])
        awaited = self._widths(self._awaited[-MAX_OBSERVATIONS:])
        pool, gains = parents[:0], np.zeros(0)
        for share in RANDOM_SHARES:
            offspring = self._bred(parents, int(share * self.settings.offspring))
            offspring = offspring[self.unseen(offspring)]
            gain = log_expected_improvement(*model.predict(self._widths(offspring), awaited), float(own.max()))
            pool, gains = np.concatenate([pool, offspring]), np.concatenate([gains, gain])
            order = np.argsort(-gains, kind="stable")
            parents = np.concatenate([pool[order], parents])[:PARENTS]
        return pool[order]

    def _bred(self, parents: Genes, random: int) -> Genes:
        """Offspring of random parents, half by moving width, half crossed and mutated, and `random` random vectors."""
        generator = self.generator
        count = self.settings.offspring - random
        half = count // 2
        mothers, fathers = parents[generator.integers(len(parents), size=(2, count))]
        mixed = mutated(crossed(mothers[half:], fathers[half:], generator), 1.5 / len(self.space), generator)
        genes = np.concatenate([transferred(mothers[:half], generator), mixed, self.sample(random)])
        return self.rescaling(genes, generator)

    @property
    def _awaited(self) -> Genes:
        """The structures without a score."""
        return self.space.genes(np.array(self.outstanding, dtype=np.int64).reshape(-1, len(self._full)))

    def _diverse(self, genes: Genes) -> Genes:
        """The structures of a step: the first rows that differ enough from those chosen before them."""
        distance = min(MIN_GENE_DISTANCE, len(self.space))
        chosen = genes[:0]
        for row in genes:
            if ((row != chosen).sum(axis=1) >= distance).all():
                chosen = np.concatenate([chosen, row[None]])
            if len(chosen) == self._step:
                break
        return chosen

    # -- the model ----------------------------------------------------------------------------------------------------

    def _choose_model(self) -> None:
        """Choose the kernel and, with many groups and observations, the model with the larger evidence."""
        process = GaussianProcess(*self._data())
        self._kernel = process.kernel
        self._fitted = len(self.history)
        many = len(self.space) > RIDGE_MIN_GROUPS and len(self.history) > RIDGE_MIN_EVALUATIONS
        self._use_ridge = many and RidgeRegression(*self._data()).evidence > process.evidence

    def _model(self) -> GaussianProcess | RidgeRegression:
        """A model of the candidates of `_observed`, in that order, followed by those of earlier searches."""
        return RidgeRegression(*self._data()) if self._use_ridge else GaussianProcess(*self._data(), self._kernel)

    def _data(self) -> tuple[Matrix, Matrix]:
        """Widths, as fractions of the full ones, and scores of the candidates that the model is fitted to."""
        candidates = [*self._observed(), *self.prior]
        scores = np.array([candidate.score for candidate in candidates])
        return self._counts_of(candidates) / self._full, without_outliers(scores)

    def _observed(self) -> list[Candidate]:
        return self.history.top(MAX_OBSERVATIONS)

    def _counts_of(self, candidates: Sequence[Candidate]) -> NDArray[np.int64]:
        return np.array([candidate.structure.counts for candidate in candidates], dtype=np.int64)

    def _widths(self, genes: Genes) -> Matrix:
        """Widths as fractions of the full ones."""
        return self.space.counts(genes) / self._full

    def promising(self, count: int) -> list[Candidate]:
        """The candidates with the largest sums of a quarter of the score and three quarters of the predicted score."""
        if not len(self.history):
            return []
        observed = self._observed()
        means = self._model().fitted[: len(observed)]
        trust = [
            SCORE_TRUST * known.score + (1 - SCORE_TRUST) * mean for known, mean in zip(observed, means, strict=True)
        ]
        return [observed[int(place)] for place in np.argsort(-np.array(trust), kind="stable")[:count]]

    def learn(self, genes: Genes, scores: Sequence[float]) -> None:
        """The model is fitted to the history whenever it is needed."""

    def memory(self) -> dict[str, Any]:
        kernel = asdict(self._kernel) if self._kernel else None
        return {"kernel": kernel, "use_ridge": self._use_ridge, "fitted": self._fitted}

    def restore(self, memory: Mapping[str, Any]) -> None:
        self._kernel = Kernel(**memory["kernel"]) if memory["kernel"] else None
        self._use_ridge = memory["use_ridge"]
        self._fitted = memory["fitted"]


def without_outliers(scores: Matrix) -> Matrix:
    """Scores for a model, those far below the median raised: a single one of -1000 would make all others look equal."""
    usual, best = float(np.median(scores)), float(scores.max())
    return np.maximum(scores, usual - OUTLIER * (best - usual)) if best > usual else scores


def log_expected_improvement(means: Matrix, deviations: Matrix, best: float) -> Matrix:
    """The logarithm of E[max(0, score - best)] for normally distributed scores, accurate far below the best too."""
    z = (means - best) / deviations
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    upper = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])
    with np.errstate(divide="ignore"):
        near = np.log(np.maximum(density + z * upper, 0))
    far = -0.5 * z**2 - 0.5 * math.log(2 * math.pi) - 2 * np.log(np.maximum(np.abs(z), 1))
    return np.asarray(np.log(deviations) + np.where(z > -5, near, far))
