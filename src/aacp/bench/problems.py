"""Problems with known answers: Eq. 14 of the paper, a knapsack, and synthetic pruning problems in three families.

A pruning problem is a real network's cost model with made-up damage. Damage is additive over groups, or couples
neighbours (layers of unequal width hurt each other) or random pairs of groups (what one loses the other cannot mend).
An estimate sees the true accuracy through a finite validation set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.bench.networks import ConvolutionNetwork, resnet, vgg16
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import InvalidOption
from aacp.search.rescaling import Rescaling
from aacp.search.seeds import seeds
from aacp.search.variation import mutated, transferred
from aacp.space import SearchSpace
from aacp.structure import Structure

FAMILIES = ("additive", "neighbour", "random")
Rows = NDArray[np.float64]

CEILING, FLOOR = 0.94, 0.10  # accuracy of the unpruned network, and of a guess among ten classes
ALONE = 0.08  # additive damage of the flat structure at half the MACs: seven points of accuracy
TOGETHER = {"neighbour": 0.7, "random": 0.4}  # mean damage by coupling over random structures


@dataclass(frozen=True, eq=False)
class Problem:
    """A space, a budget, and the true score of each structure (a row each); `images` is the validation set's size."""

    name: str
    space: SearchSpace
    budget: Budget
    true: Callable[[ArrayLike], Rows]
    images: int | None
    seed: int
    optimum: float | None = None  # where it is known

    def estimate(self, structure: Structure) -> float:
        """The score as a finite validation set shows it: always the same for the same structure."""
        score = float(self.true([list(structure)])[0])
        if self.images is None:
            return score
        generator = np.random.default_rng([self.seed, *structure])
        return float(generator.binomial(self.images, score) / self.images)

    def reference(self, starts: int = 2, quiet: int = 25) -> float:
        """The optimum, or else the best true score that a long search with sight of the truth finds."""
        if self.optimum is not None:
            return self.optimum
        generator = np.random.default_rng([self.seed, 1])
        rescaling = Rescaling(self.space, self.budget)
        begin = seeds(rescaling, generator)
        begin = begin[np.argsort(-self.true(self.space.counts(begin)))][:starts]
        return max(self._climbed(row, rescaling, generator, quiet) for row in begin)

    def _climbed(
        self, row: NDArray[np.int64], rescaling: Rescaling, generator: np.random.Generator, quiet: int
    ) -> float:
        score, still = -np.inf, 0
        while still < quiet:
            rows = np.tile(row, (150, 1))
            rows = np.concatenate([transferred(rows, generator), mutated(rows, 2 / len(row), generator)])
            rows = rescaling(rows, generator)
            scores = self.true(self.space.counts(rows))
            still += 1
            if scores.max() > score:
                row, score, still = rows[scores.argmax()], float(scores.max()), 0
        return score


def equation_14() -> Problem:
    """min ||x - 5|| over whole x_i with -10 < x_i < 10, i = 1..30 (Eq. 14): a gene is x + 9, a count x + 10."""
    space = SearchSpace.from_widths([19] * 30, pruning_step=1)

    def true(counts: ArrayLike) -> Rows:
        return np.asarray(-np.linalg.norm(np.asarray(counts) - 15.0, axis=-1))

    return Problem("Eq. 14", space, Budget(), true, None, 0, optimum=0.0)


def knapsack(seed: int = 0, groups: int = 30) -> Problem:
    """Groups of eight steps that neither share costs nor damage, half of the cost allowed: solved exactly by tables."""
    generator = np.random.default_rng([seed, 14])
    space = SearchSpace.from_widths([8] * groups, pruning_step=1)
    prices = generator.integers(1, 20, size=groups)
    cost = Cost("price", "coins", float(8 * prices.sum()), lambda counts: counts @ prices)
    budget = Budget(Limit(cost, pruning_rate=0.5))
    weights, powers = generator.lognormal(0, 1, groups), generator.uniform(1.5, 4, groups)
    weights *= ALONE / float((0.5**powers) @ weights)

    def damages(counts: ArrayLike) -> Rows:
        return np.asarray((1 - np.asarray(counts) / 8) ** powers * weights)

    least = _least_damage(damages(np.arange(1, 9)[:, None]), prices, int(4 * prices.sum()))
    accuracy = FLOOR + (CEILING - FLOOR) * np.exp(-least)

    def true(counts: ArrayLike) -> Rows:
        return np.asarray(FLOOR + (CEILING - FLOOR) * np.exp(-damages(counts).sum(axis=-1)))

    return Problem("knapsack", space, budget, true, None, seed, optimum=float(accuracy))


def _least_damage(damages: Rows, prices: NDArray[np.int64], coins: int) -> float:
    """The least sum of damages (one row per count from 1, one column per group) that so many coins buy."""
    least = np.zeros(coins + 1)  # with the groups so far, for each number of coins
    for column, price in zip(damages.T, prices.tolist(), strict=True):
        options = [
            np.concatenate([np.full(min(count * price, coins + 1), np.inf), least[: max(0, coins + 1 - count * price)]])
            + damage
            for count, damage in enumerate(column, start=1)
        ]
        least = np.min(options, axis=0)
    return float(least[-1])


def network(name: str) -> ConvolutionNetwork:
    """A cost model by name."""
    if name == "vgg16":
        return vgg16()
    depth = name.removeprefix("resnet")
    if depth != name and depth.isdecimal() and int(depth) >= 8 and int(depth) % 6 == 2:
        return resnet(int(depth))
    raise InvalidOption(f"There is no cost model {name!r}. Choose vgg16, resnet20, resnet56, resnet110 (6n + 2).")


def pruning_problem(
    family: str,
    model: str = "resnet56",
    seed: int = 0,
    pruning_rate: float = 0.5,
    pruning_step: float = 1 / 8,
    images: int | None = 5000,
) -> Problem:
    """A synthetic pruning problem: the damage is drawn from `seed`, the budget removes `pruning_rate` of the MACs."""
    if family not in FAMILIES:
        raise InvalidOption(f"There is no family {family!r} of problems. Choose from {', '.join(FAMILIES)}.")
    cost_model = network(model)
    space = SearchSpace.from_widths(cost_model.widths, pruning_step)
    budget = Budget(Limit(cost_model.macs(), pruning_rate=pruning_rate))
    damage = _damage(family, cost_model.uses, np.random.default_rng([seed, FAMILIES.index(family)]))
    full = np.array(cost_model.widths, dtype=np.float64)

    def true(counts: ArrayLike) -> Rows:
        return FLOOR + (CEILING - FLOOR) * np.exp(-damage(np.asarray(counts) / full))

    return Problem(f"{family} {cost_model.name}", space, budget, true, images, seed)


def _damage(family: str, uses: NDArray[np.int64], generator: np.random.Generator) -> Callable[[Rows], Rows]:
    """Damage of widths given as fractions, a row each: over groups, each as its layers are many, and over pairs."""
    groups = len(uses)
    weights = uses * generator.lognormal(0, 1, groups)
    powers = generator.uniform(1.5, 4, groups)
    alone = _scaled(lambda rows: (1 - rows) ** powers @ weights, np.full((1, groups), 0.5**0.5), ALONE)
    if family == "additive":
        return alone
    together = _coupling(family, groups, generator)
    typical = generator.integers(1, 9, size=(256, groups)) / 8
    together = _scaled(together, typical, TOGETHER[family])
    return lambda rows: alone(rows) + together(rows)


def _coupling(family: str, groups: int, generator: np.random.Generator) -> Callable[[Rows], Rows]:
    if family == "neighbour":
        first, second = np.arange(groups - 1), np.arange(1, groups)
        weights = generator.lognormal(0, 1, groups - 1)
        return lambda rows: (rows[:, first] - rows[:, second]) ** 2 @ weights
    first, second = generator.integers(groups, size=(2, 2 * groups))
    weights = generator.lognormal(0, 1, 2 * groups)
    return lambda rows: ((1 - rows[:, first]) * (1 - rows[:, second])) ** 2 @ weights


def _scaled(damage: Callable[[Rows], Rows], rows: Rows, mean: float) -> Callable[[Rows], Rows]:
    """The same damage, with this mean over these rows."""
    factor = mean / float(damage(rows).mean())
    return lambda widths: factor * damage(widths)
