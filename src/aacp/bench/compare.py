"""Comparison of search methods on synthetic problems: equal evaluations, many seeds, mean and spread of the regret.

The methods of the paper's authors are also compared at their own length, which is ten times the default.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aacp.bench.parallel import results_of
from aacp.bench.problems import Problem, knapsack, pruning_problem
from aacp.bench.rivals import compared_method
from aacp.search.loop import run_search
from aacp.search.methods import named_method, searcher
from aacp.user.progress import without_progress

NETWORKS = ("vgg16", "resnet56", "resnet110")
MARKS = (50, 100, 200)  # numbers of evaluations after which the regret is measured
METHODS = ("default", "released", "paper", "ide+", "tournament", "random", "sensitivity", "uniform", "de", "bees")
OWN_LENGTHS = {  # methods whose own length is beyond the last mark
    method: length for method in METHODS if (length := named_method(compared_method(method)).evaluations) > MARKS[-1]
}


@dataclass(frozen=True)
class Comparison:
    """Regrets in points of accuracy on one family: for each method, a row per seed and a column per mark.

    Args:
        family: the family of problems.
        regrets: at the marks that are the same for all methods.
        own_lengths: the further mark of a method that has a length of its own.
        regrets_at_own_length: at that mark, one number per seed.
    """

    family: str
    regrets: dict[str, list[list[float]]]
    own_lengths: dict[str, int]
    regrets_at_own_length: dict[str, list[float]]

    def columns(self, method: str) -> list[list[float]]:
        """The regrets of all seeds at each mark; the last column is at the method's own length if it has one."""
        at_marks = [list(column) for column in zip(*self.regrets[method], strict=True)]
        return at_marks + ([self.regrets_at_own_length[method]] if method in self.own_lengths else [])

    def mean(self, method: str) -> list[float]:
        return [float(np.mean(column)) for column in self.columns(method)]

    def spread(self, method: str) -> list[float]:
        """The standard deviations over seeds; one seed has none, which is NaN."""
        return [float(np.std(column, ddof=1)) if len(column) > 1 else math.nan for column in self.columns(method)]


def measure(
    family: str,
    seeds: int = 50,
    methods: Sequence[str] = METHODS,
    marks: Sequence[int] = MARKS,
    own_lengths: Mapping[str, int] = OWN_LENGTHS,
    processes: int = 1,
) -> Comparison:
    """Run all methods on the problems of a family; the network changes from seed to seed.

    Args:
        family: one of aacp.bench.FAMILIES.
        seeds: the number of problems.
        methods: names in aacp.bench.rivals.COMPARED.
        marks: the numbers of evaluations at which all methods are compared.
        own_lengths: for some methods, one more mark.
        processes: how many problems are solved at once, in a process each.
    """
    longer = {method: own_lengths[method] for method in methods if method in own_lengths}
    comparison = Comparison(family, {method: [] for method in methods}, longer, {method: [] for method in longer})
    all_marks = {method: [*marks, *([longer[method]] if method in longer else [])] for method in methods}
    found = results_of(_solved, [family] * seeds, range(seeds), [all_marks] * seeds, processes=processes)
    for reference, scores in found:
        add_seed(comparison, reference, scores)
    return comparison


def _solved(family: str, seed: int, marks: Mapping[str, Sequence[int]]) -> tuple[float, dict[str, list[float]]]:
    """The reference score of a problem, and the true scores of each method at its marks."""
    problem = problem_of(family, seed)
    return problem.reference(), {method: true_scores(method, problem, seed, marks[method]) for method in marks}


def add_seed(comparison: Comparison, reference: float, scores: Mapping[str, Sequence[float]]) -> None:
    """Add the regrets of one problem to a comparison.

    Args:
        comparison: gets a row for each method.
        reference: the best true score that a long search without noise has found.
        scores: for each method, the true scores of its recommendations at its marks.
    """
    # If a method finds a better structure than the reference search, that one is the best reachable.
    best = max(reference, *(max(row) for row in scores.values()))
    for method, row in scores.items():
        regrets = [round(100 * (best - score), 4) for score in row]
        if method in comparison.own_lengths:
            comparison.regrets_at_own_length[method].append(regrets.pop())
        comparison.regrets[method].append(regrets)


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
        with without_progress():
            result = run_search(search, problem.estimate, evaluations=mark)
        found.append(float(problem.true([list(result.recommended.structure)])[0]))
    return found


def table(comparison: Comparison, marks: Sequence[int] = MARKS) -> str:
    """Mean regret ± standard deviation over seeds after each mark; "-" where a method was not measured.

    One seed has no standard deviation: its regret stands alone.
    """
    longer = sorted(set(comparison.own_lengths.values()))
    lines = [f"{comparison.family}: regret in points, mean ± standard deviation over seeds", ""]
    lines.append("| searcher | " + " | ".join(f"after {mark:,} evaluations" for mark in (*marks, *longer)) + " |")
    lines.append("|---" * (1 + len(marks) + len(longer)) + "|")
    for method in comparison.regrets:
        lengths = [*marks, *([comparison.own_lengths[method]] if method in comparison.own_lengths else [])]
        pairs = zip(comparison.mean(method), comparison.spread(method), strict=True)
        cells = dict(zip(lengths, [_cell(mean, spread) for mean, spread in pairs], strict=True))
        lines.append(f"| {method} | " + " | ".join(cells.get(mark, "-") for mark in (*marks, *longer)) + " |")
    return "\n".join(lines)


def _cell(mean: float, spread: float) -> str:
    return f"{mean:.2f}" if math.isnan(spread) else f"{mean:.2f} ± {spread:.2f}"
