"""The method `curves`: the least sum of errors within a budget, compared with exhaustive search."""

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from aacp.bench.problems import Problem, knapsack
from aacp.channels.space import SearchSpace
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import InvalidOption
from aacp.search.baselines import CurveSearch
from aacp.search.curves import ErrorCurves
from aacp.search.loop import run_search
from aacp.search.methods import searcher

GROUPS = 4
WIDTH = 6


def cost(name: str, function: Callable[[Any], Any]) -> Cost:
    return Cost(name, "", float(function(np.full(GROUPS, WIDTH))), function)


def random_budget(generator: np.random.Generator) -> Budget:
    """A limit on a quadratic cost (as MACs are), one on a linear cost and one on a staircase (as latencies are)."""
    pairs = generator.random((GROUPS, GROUPS))
    prices = generator.random((2, GROUPS))
    return Budget(
        Limit(cost("macs", lambda counts: np.einsum("...i,ij,...j->...", counts, pairs, counts)), pruning_rate=0.5),
        Limit(cost("params", lambda counts: np.asarray(counts) @ prices[0]), pruning_rate=generator.uniform(0.1, 0.5)),
        Limit(cost("latency", lambda counts: np.ceil(np.asarray(counts) / 2) @ prices[1]), pruning_rate=0.2),
    )


def random_curves(space: SearchSpace, generator: np.random.Generator) -> ErrorCurves:
    """Decreasing errors, convex or not, zero at the full width."""
    errors = {
        name: np.append(generator.lognormal() * np.sort(generator.random(choice[-1]))[::-1], 0.0)
        for name, choice in zip(space.names, space.choices, strict=True)
    }
    return ErrorCurves(errors)


def total(curves: ErrorCurves, space: SearchSpace, counts: Any) -> Any:
    return sum(curves.errors[name][np.asarray(counts)[..., place]] for place, name in enumerate(space.names))


@pytest.mark.parametrize("ties", [(), [(0, 2)]])
@pytest.mark.parametrize("seed", range(8))
def test_no_structure_within_three_limits_has_less_error(seed: int, ties: Any) -> None:
    generator = np.random.default_rng(seed)
    space = SearchSpace.from_widths([WIDTH] * GROUPS, pruning_step=[1, 2, 1, 1], ties=ties)
    budget = random_budget(generator)
    curves = random_curves(space, generator)
    found = curves.best(space, budget)
    everything = space.counts(np.array(list(product(*map(range, space.levels)))))
    allowed = everything[budget.feasible(everything)]
    assert found in space
    assert budget.feasible(found)
    assert total(curves, space, list(found)) == pytest.approx(total(curves, space, allowed).min(), rel=1e-9)


def knapsack_curves(problem: Problem) -> ErrorCurves:
    """The damage of each group alone, recovered from scores: a score falls exponentially with the sum of damages."""
    counts = np.full((len(problem.space), 9, len(problem.space)), 8)
    for group, rows in enumerate(counts):
        rows[:, group] = np.arange(9)
    damages = -np.log((problem.true(counts) - 0.10) / 0.84)
    return ErrorCurves(dict(zip(problem.space.names, damages, strict=True)))


@pytest.mark.slow
def test_thirty_groups_are_solved_like_by_dynamic_programming() -> None:
    problem = knapsack(seed=1)
    found = knapsack_curves(problem).best(problem.space, problem.budget)
    assert float(problem.true([list(found)])[0]) == pytest.approx(problem.optimum, abs=1e-12)


def test_without_limits_nothing_is_removed() -> None:
    space = SearchSpace.from_widths([5, 7], pruning_step=1)
    curves = random_curves(space, np.random.default_rng(0))
    assert curves.best(space, Budget()) == space.full


@pytest.mark.slow
def test_the_method_evaluates_one_structure(problem: Problem) -> None:
    curves = random_curves(problem.space, np.random.default_rng(0))
    found = run_search(
        searcher("curves", problem.space, problem.budget, curves=curves), problem.estimate, evaluations=9
    )
    assert [candidate.structure for candidate in found.history] == [curves.best(problem.space, problem.budget)]
    assert found.stopped == "exhausted"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["default", "random", "ide+", "paper"])
def test_every_other_method_begins_with_the_structure_of_the_curves(problem: Problem, method: str) -> None:
    curves = random_curves(problem.space, np.random.default_rng(0))
    search = searcher(method, problem.space, problem.budget, curves=curves)
    assert search.ask()[0] == curves.best(problem.space, problem.budget)


@pytest.mark.slow
def test_the_method_resumes_without_curves(problem: Problem) -> None:
    curves = random_curves(problem.space, np.random.default_rng(0))
    search = searcher("curves", problem.space, problem.budget, curves=curves)
    again = CurveSearch.from_state(problem.space, problem.budget, search.state())
    assert again.ask() == search.ask()


def test_the_method_needs_curves(problem: Problem) -> None:
    with pytest.raises(InvalidOption, match="'curves' chooses by error curves, but none are given"):
        searcher("curves", problem.space, problem.budget)


@pytest.mark.parametrize("curve", [np.zeros(5), np.full(7, np.nan)])
def test_an_incomplete_curve_is_rejected(curve: Any) -> None:
    space = SearchSpace.from_widths([6], pruning_step=1)
    with pytest.raises(InvalidOption, match="'group0' has"):
        ErrorCurves({"group0": curve}).best(space, Budget())
