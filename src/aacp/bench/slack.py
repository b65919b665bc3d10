"""Slack and overhead: how much of a budget rescaling leaves unused, and the time per proposal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aacp.bench.problems import network, pruning_problem
from aacp.bench.rivals import compared_method
from aacp.channels.space import SearchSpace
from aacp.cost.budget import Budget, Limit
from aacp.search.methods import searcher
from aacp.search.rescaling import Form, Rescaling

FORMS: tuple[Form, ...] = ("printed", "shrink", "two-sided")


@dataclass(frozen=True)
class Slack:
    """The unused share of a budget of -50 % MACs after rescaling random vectors, in points of the unpruned MACs."""

    model: str
    pruning_step: float
    form: Form
    mean: float
    most: float
    broken: float  # the share of results that breaks a limit
    idle: float  # the share of results to which a single step could be added


def slacks(
    models: Sequence[str] = ("vgg16", "resnet56", "resnet110"),
    steps: Sequence[float] = (1 / 8, 1 / 32),
    draws: int = 1000,
) -> list[Slack]:
    """Every form of Algorithm 1 on uniformly drawn vectors. As in the paper, parameters are limited too, to -0 %."""
    return [_slack(model, step, form, draws) for model in models for step in steps for form in FORMS]


def _slack(model: str, step: float, form: Form, draws: int) -> Slack:
    costs = network(model)
    space = SearchSpace.from_widths(costs.widths, step)
    macs = Limit(costs.macs(), pruning_rate=0.5)
    budget = Budget(macs, Limit(costs.params(), pruning_rate=0.0))
    generator = np.random.default_rng(0)
    genes = Rescaling(space, budget)(generator.integers(space.levels, size=(draws, len(space))), generator, form)
    feasible = budget.feasible(space.counts(genes))
    left = 100 * macs.slack(space.counts(genes))[feasible]
    idle = np.mean([_has_room(row, space, budget) for row in genes[feasible]])
    return Slack(model, step, form, float(left.mean()), float(left.max()), float(1 - feasible.mean()), float(idle))


def _has_room(genes: np.ndarray[tuple[int], np.dtype[np.int64]], space: SearchSpace, budget: Budget) -> bool:
    """Whether a single step up would fit, by the costs themselves."""
    more = genes + np.eye(len(genes), dtype=np.int64)
    return bool(budget.feasible(space.counts(more[(more < space.levels).all(axis=1)])).any())


def slack_table(rows: Sequence[Slack]) -> str:
    head = "| network | step | rescaling | mean slack | largest | breaks a limit | room for a step |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for row in rows:
        shares = f"{100 * row.broken:.0f} % | {100 * row.idle:.0f} %"
        step = f"c/{1 / row.pruning_step:g}"
        lines.append(f"| {row.model} | {step} | {row.form} | {row.mean:.3f} | {row.most:.3f} | {shares} |")
    return "\n".join(lines)


def overhead(method: str, evaluations: int = 200, repeats: int = 20) -> float:
    """The median time per proposal, in milliseconds, on the 51 groups of a ResNet98 after `evaluations`."""
    problem = pruning_problem("additive", "resnet98")
    search = searcher(compared_method(method), problem.space, problem.budget)
    spent: list[float] = []
    while len(spent) < repeats:
        begun = time.perf_counter()
        batch = search.ask()
        if len(search.history) >= evaluations:
            spent.append(1000 * (time.perf_counter() - begun) / len(batch))
        search.tell([(structure, problem.estimate(structure)) for structure in batch])
    return float(np.median(spent))


def overhead_table(methods: Sequence[str] = ("paper", "ide+", "default")) -> str:
    lines = ["| method | ms per proposal, 51 groups, 200 observations |", "|---|---|"]
    return "\n".join([*lines, *(f"| {method} | {overhead(method):.2f} |" for method in methods)])
