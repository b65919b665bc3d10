"""Comparison of search methods on synthetic problems: equal evaluations, many seeds, mean and spread of the regret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aacp.bench.problems import Problem, knapsack, pruning_problem
from aacp.bench.rivals import compared_method
from aacp.search.loop import run_search
from aacp.search.methods import searcher

NETWORKS = ("vgg16", "resnet56", "resnet110")
MARKS = (50, 100, 200)  # numbers of evaluations after which the regret is measured
METHODS = ("default", "paper", "ide+", "tournament", "random", "sensitivity", "uniform", "de", "bees")


@dataclass(frozen=True)
class Comparison:
    """Regrets in points of accuracy on one family: for each method, a row per seed and a column per mark."""

    family: str
    regrets: dict[str, list[list[float]]]

    def mean(self, method: str) -> list[float]:
        return [float(value) for value in np.mean(self.regrets[method], axis=0)]

    def spread(self, method: str) -> list[float]:
        return [float(value) for value in np.std(self.regrets[method], axis=0, ddof=1)]


def measure(family: str, seeds: int = 50, methods: Sequence[str] = METHODS, marks: Sequence[int] = MARKS) -> Comparison:
    """Run all methods on `seeds` problems of a family; the network changes from seed to seed."""
    regrets: dict[str, list[list[float]]] = {method: [] for method in methods}
    for seed in range(seeds):
        problem = problem_of(family, seed)
        scores = {method: true_scores(method, problem, seed, marks) for method in methods}
        # If a method finds a better structure than the reference search, that one is the best reachable.
        best = max(problem.reference(), *(max(row) for row in scores.values()))
        for method, row in scores.items():
            regrets[method].append([round(100 * (best - score), 4) for score in row])
    return Comparison(family, regrets)


def problem_of(family: str, seed: int) -> Problem:
    """The problem of a family with this seed."""
    if family == "knapsack":
        return knapsack(seed)
    return pruning_problem(family, NETWORKS[seed % len(NETWORKS)], seed=seed)


def true_scores(method: str, problem: Problem, seed: int, marks: Sequence[int]) -> list[float]:
    """The true score of the recommended structure after each number of evaluations."""
    search = searcher(compared_method(method), problem.space, problem.budget, seed)
    found = []
    for mark in marks:
        result = run_search(search, problem.estimate, evaluations=mark)
        found.append(float(problem.true([list(result.recommended.structure)])[0]))
    return found


def table(comparison: Comparison, marks: Sequence[int] = MARKS) -> str:
    """Mean regret ± standard deviation over seeds after each mark."""
    lines = [f"{comparison.family}: regret in points, mean ± standard deviation over seeds", ""]
    lines.append("| searcher | " + " | ".join(f"after {mark} evaluations" for mark in marks) + " |")
    lines.append("|---" * (1 + len(marks)) + "|")
    for method in comparison.regrets:
        pairs = zip(comparison.mean(method), comparison.spread(method), strict=True)
        lines.append(f"| {method} | " + " | ".join(f"{mean:.2f} ± {spread:.2f}" for mean, spread in pairs) + " |")
    return "\n".join(lines)
