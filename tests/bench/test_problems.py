"""Synthetic problems: their optima, their noise, their families."""

from itertools import product

import numpy as np
import pytest

from aacp.bench.problems import FAMILIES, _least_damage, equation_14, knapsack, pruning_problem
from aacp.channels.structure import Structure
from aacp.errors import InvalidOption


def test_equation_14_is_the_distance_to_five() -> None:
    problem = equation_14()
    assert problem.space.size == 19**30
    assert problem.estimate(Structure([15] * 30)) == 0
    assert problem.estimate(Structure([1] * 30)) == pytest.approx(-14 * 30**0.5)
    assert problem.estimate(Structure([18] + [15] * 29)) == -3


def test_the_tables_solve_a_knapsack_that_can_be_enumerated() -> None:
    generator = np.random.default_rng(0)
    prices = generator.integers(1, 5, size=4)
    damages = np.sort(generator.random((3, 4)), axis=0)[::-1]
    coins = int(1.6 * prices.sum())
    sums = [
        sum(damages[count - 1, group] for group, count in enumerate(counts))
        for counts in product((1, 2, 3), repeat=4)
        if np.array(counts) @ prices <= coins
    ]
    assert _least_damage(damages, prices, coins) == pytest.approx(min(sums))


@pytest.mark.slow
def test_no_structure_beats_the_knapsacks_optimum_and_search_comes_close() -> None:
    problem = knapsack(seed=2, groups=8)
    generator = np.random.default_rng(0)
    rows = problem.space.counts(generator.integers(problem.space.levels, size=(20_000, 8)))
    rows = rows[problem.budget.feasible(rows)]
    assert problem.optimum is not None
    assert problem.true(rows).max() <= problem.optimum + 1e-12
    blind = pruning_problem("additive", "resnet20")
    climbed = type(problem)("same", problem.space, problem.budget, problem.true, None, 2).reference()
    assert 0 <= problem.optimum - climbed < 0.002
    assert blind.optimum is None


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_damage_grows_from_nothing_and_the_flat_structure_is_beaten(family: str) -> None:
    problem = pruning_problem(family, "resnet20", seed=4)
    full = np.array([list(problem.space.full)])
    assert problem.true(full)[0] == pytest.approx(0.94)
    flat = problem.space.counts(np.full((1, len(problem.space)), 4))
    assert 0.1 < problem.true(flat)[0] < problem.reference() < 0.94


def test_coupling_is_what_sets_the_families_apart() -> None:
    """The mixed second difference of the log damage in two groups: nothing when additive, something when coupled."""

    def mixed(family: str, first: int, second: int) -> float:
        problem = pruning_problem(family, "resnet20", seed=4)
        wide = problem.space.levels - 4
        rows = np.stack([wide] * 4)
        rows[1:3, first] -= 2
        rows[2:4, second] -= 2
        loss = -np.log((problem.true(problem.space.counts(rows)) - 0.1) / 0.84)
        return float(loss[2] - loss[1] - loss[3] + loss[0])

    assert abs(mixed("additive", 3, 4)) < 1e-12
    assert abs(mixed("neighbour", 3, 4)) > 1e-4
    assert abs(mixed("neighbour", 3, 7)) < 1e-12
    pairs = [(i, j) for i in range(12) for j in range(i)]
    assert any(abs(mixed("random", i, j)) > 1e-4 for i, j in pairs if i - j > 1)


def test_noise_is_that_of_a_finite_set_and_the_same_at_every_look() -> None:
    problem = pruning_problem("additive", "vgg16", seed=1, images=1000)
    rows = problem.space.counts(np.random.default_rng(0).integers(4, 8, size=(400, 13)))
    structures = [Structure(row.tolist()) for row in rows]
    seen, true = np.array([problem.estimate(s) for s in structures]), problem.true(rows)
    assert seen.tolist() == [problem.estimate(s) for s in structures]
    z = (seen - true) / np.sqrt(true * (1 - true) / 1000)
    assert abs(z.mean()) < 0.2
    assert z.std() == pytest.approx(1, abs=0.15)


def test_unknown_families_and_networks_are_rejected() -> None:
    with pytest.raises(InvalidOption, match="additive, neighbour, random"):
        pruning_problem("sideways")
    with pytest.raises(InvalidOption, match="vgg16"):
        pruning_problem("additive", "lenet")
