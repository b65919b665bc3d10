"""Problems with known optima: Eq. 14 of the paper, a knapsack, and synthetic pruning problems of three families.

A pruning problem has the cost model of a real network and synthetic damage. Damage is additive over groups; in two
families it also couples neighbouring groups (unequal widths hurt) or random pairs of groups (narrow pairs hurt). An
estimate is the true accuracy with the sampling noise of a finite validation set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.bench.networks import ConvolutionNetwork, resnet, vgg16
from aacp.channels.space import PRUNING_STEP, SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import InvalidOption
from aacp.search.rescaling import Rescaling
from aacp.search.seeds import seeds
from aacp.search.variation import mutated, transferred
from aacp.user.options import require_known

FAMILIES = ("additive", "neighbour", "random")
Rows = NDArray[np.float64]

CEILING = 0.94  # accuracy of the unpruned network
FLOOR = 0.10  # accuracy of guessing among ten classes
ADDITIVE_DAMAGE = 0.08  # damage of the uniform structure at half the MACs; it costs seven points of accuracy
COUPLING_DAMAGE = {"neighbour": 0.7, "random": 0.4}  # mean over random structures
STARTS = 2  # analytic seeds that the search for the best score starts from
MAX_STILL = 25  # generations without improvement after which this search ends


@dataclass(frozen=True, eq=False)
class Problem:
    """A space, a budget and the true score of structures (one per row)."""

    name: str
    space: SearchSpace
    budget: Budget
    true: Callable[[ArrayLike], Rows]
    images: int | None  # size of the validation set; None: estimates have no noise
    seed: int
    optimum: float | None = None  # the best true score, if it is known

    def estimate(self, structure: Structure) -> float:
        """The score on a finite validation set, always the same for the same structure."""
        score = float(self.true([list(structure)])[0])
        if self.images is None:
            return score
        generator = np.random.default_rng([self.seed, *structure])
        return float(generator.binomial(self.images, score) / self.images)

    def reference(self) -> float:
        """The optimum, or else the best true score that a long search without noise finds."""
        if self.optimum is not None:
            return self.optimum
        generator = np.random.default_rng([self.seed, 1])
        rescaling = Rescaling(self.space, self.budget)
        begin = seeds(rescaling, generator)
        begin = begin[np.argsort(-self.true(self.space.counts(begin)))][:STARTS]
        return max(self._climbed(row, rescaling, generator) for row in begin)

    def _climbed(self, row: NDArray[np.int64], rescaling: Rescaling, generator: np.random.Generator) -> float:
        score, still = -np.inf, 0
        while still < MAX_STILL:
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
    """Groups of eight steps with independent costs and damage, half of the cost allowed: solved exactly."""
    generator = np.random.default_rng([seed, 14])
    space = SearchSpace.from_widths([8] * groups, pruning_step=1)
    prices = generator.integers(1, 20, size=groups)
    cost = Cost("price", "coins", float(8 * prices.sum()), lambda counts: counts @ prices)
    budget = Budget(Limit(cost, pruning_rate=0.5))
    weights, powers = generator.lognormal(0, 1, groups), generator.uniform(1.5, 4, groups)
    weights *= ADDITIVE_DAMAGE / float((0.5**powers) @ weights)

    def damages(counts: ArrayLike) -> Rows:
        return np.asarray((1 - np.asarray(counts) / 8) ** powers * weights)

    least = _least_damage(damages(np.arange(1, 9)[:, None]), prices, int(4 * prices.sum()))
    accuracy = FLOOR + (CEILING - FLOOR) * np.exp(-least)

    def true(counts: ArrayLike) -> Rows:
        return np.asarray(FLOOR + (CEILING - FLOOR) * np.exp(-damages(counts).sum(axis=-1)))

    return Problem("knapsack", space, budget, true, None, seed, optimum=float(accuracy))


def _least_damage(damages: Rows, prices: NDArray[np.int64], coins: int) -> float:
    """The least sum of damages (one row per count from 1, one column per group) for a number of coins."""
    least = np.zeros(coins + 1)  # for each number of coins, with the groups so far
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
    images: int | None = 5000,
) -> Problem:
    """A synthetic pruning problem.

    Args:
        family: "additive", "neighbour" or "random".
        model: the cost model: "vgg16" or "resnetN" with N = 6n + 2.
        seed: the seed of the damage, which is drawn at random.
        pruning_rate: the share of the MACs that the budget removes.
        images: the size of the validation set, None for estimates without noise.
    """
    require_known("family of problems called", family, FAMILIES)
    cost_model = network(model)
    space = SearchSpace.from_widths(cost_model.widths, PRUNING_STEP)
    budget = Budget(Limit(cost_model.macs(), pruning_rate=pruning_rate))
    damage = _damage(family, cost_model.uses, np.random.default_rng([seed, FAMILIES.index(family)]))
    full = np.array(cost_model.widths, dtype=np.float64)

    def true(counts: ArrayLike) -> Rows:
        return FLOOR + (CEILING - FLOOR) * np.exp(-damage(np.asarray(counts) / full))

    return Problem(f"{family} {cost_model.name}", space, budget, true, images, seed)


def _damage(family: str, uses: NDArray[np.int64], generator: np.random.Generator) -> Callable[[Rows], Rows]:
    """The damage function of widths as fractions (a row each); a group weighs as much as the layers that use it."""
    groups = len(uses)
    weights = uses * generator.lognormal(0, 1, groups)
    powers = generator.uniform(1.5, 4, groups)
    alone = _scaled(lambda rows: (1 - rows) ** powers @ weights, np.full((1, groups), 0.5**0.5), ADDITIVE_DAMAGE)
    if family == "additive":
        return alone
    together = _coupling(family, groups, generator)
    typical = generator.integers(1, 9, size=(256, groups)) / 8
    together = _scaled(together, typical, COUPLING_DAMAGE[family])
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
    """The same damage, scaled to a given mean over these rows."""
    factor = mean / float(damage(rows).mean())
    return lambda widths: factor * damage(widths)
