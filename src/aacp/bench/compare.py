"""Comparison of search methods on synthetic problems: equal evaluations, many seeds, mean and spread of the regret.

The methods of the paper's authors are also compared at their own length, which is ten times the default.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aacp.bench.problems import Problem, knapsack, pruning_problem
from aacp.bench.rivals import compared_method
from aacp.search.loop import run_search
from aacp.search.methods import named_method, searcher

NETWORKS = ("vgg16", "resnet56", "resnet110")
MARKS = (50, 100, 200)  # numbers of evaluations after which the regret is measured
METHODS = ("default", "released", "paper", "ide+", "tournament", "random", "sensitivity", "uniform", "de", "bees")
OWN_LENGTHS = {  # methods whose own length is beyond the last mark
    method: length for method in METHODS if (length := named_method(compared_method(method)).evaluations) > MARKS[-1]
}


@dataclass(frozen=True)
class Comparison:
    """Regrets in points of accuracy on one family: for each method, a row per seed and a column per mark."""

    family: str
    marks: dict[str, list[int]]  # for each method, the numbers of evaluations after which its regret is measured
    regrets: dict[str, list[list[float]]]

    def mean(self, method: str) -> list[float]:
        return [float(value) for value in np.mean(self.regrets[method], axis=0)]

    def spread(self, method: str) -> list[float]:
        return [float(value) for value in np.std(self.regrets[method], axis=0, ddof=1)]


def measure(
    family: str,
    seeds: int = 50,
    methods: Sequence[str] = METHODS,
    marks: Sequence[int] = MARKS,
    own_lengths: Mapping[str, int] = OWN_LENGTHS,
) -> Comparison:
    """Run all methods on the problems of a family; the network changes from seed to seed.

    Args:
        family: one of aacp.bench.FAMILIES.
        seeds: the number of problems.
        methods: names in aacp.bench.rivals.COMPARED.
        marks: the numbers of evaluations at which all methods are compared.
        own_lengths: for some methods, one more mark.
    """
    all_marks = {method: [*marks, *([own_lengths[method]] if method in own_lengths else [])] for method in methods}
    regrets: dict[str, list[list[float]]] = {method: [] for method in methods}
    for seed in range(seeds):
        problem = problem_of(family, seed)
        scores = {method: true_scores(method, problem, seed, all_marks[method]) for method in methods}
        # If a method finds a better structure than the reference search, that one is the best reachable.
        best = max(problem.reference(), *(max(row) for row in scores.values()))
        for method, row in scores.items():
            regrets[method].append([round(100 * (best - score), 4) for score in row])
    return Comparison(family, all_marks, regrets)


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


def table(comparison: Comparison) -> str:
    """Mean regret ± standard deviation over seeds after each mark; "-" where a method was not measured."""
    marks = sorted({mark for row in comparison.marks.values() for mark in row})
    lines = [f"{comparison.family}: regret in points, mean ± standard deviation over seeds", ""]
    lines.append("| searcher | " + " | ".join(f"after {mark:,} evaluations" for mark in marks) + " |")
    lines.append("|---" * (1 + len(marks)) + "|")
    for method in comparison.regrets:
        pairs = zip(comparison.mean(method), comparison.spread(method), strict=True)
        cells = dict(
            zip(comparison.marks[method], (f"{mean:.2f} ± {spread:.2f}" for mean, spread in pairs), strict=True)
        )
        lines.append(f"| {method} | " + " | ".join(cells.get(mark, "-") for mark in marks) + " |")
    return "\n".join(lines)
