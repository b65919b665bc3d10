"""Limits as options: for each kind of cost a share to remove, or the most to keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import click

from aacp.commands.options import Command, gathered
from aacp.cost.budget import Budget
from aacp.cost.kinds import COSTS, CostKind

KINDS = [kind for kind in COSTS.values() if kind.option]
COST_NAMES = {kind.option: kind.name for kind in KINDS}  # the cost of each --prune-... and --max-...
Given = Mapping[str, str | None]  # the options as they were written, by parameter name


def budget_of(given: Given, *, needed: bool = True) -> Budget:
    """The budget of one run; `needed` rejects a command without limits."""
    budgets = budgets_of(given, needed=needed)
    if len(budgets) > 1:
        raise click.UsageError("Several rates were given for one limit. Give one, or use aacp sweep.")
    return budgets[0]


def budgets_of(given: Given, *, needed: bool = True) -> tuple[Budget, ...]:
    """A budget for every combination of the rates; `needed` rejects a command without limits."""
    rates = {kind.name: _rates(kind, given[f"prune_{kind.option}"]) for kind in KINDS}
    most = {kind.name: given[f"max_{kind.option}"] for kind in KINDS}
    if both := [cost for cost in rates if rates[cost] and most[cost]]:
        raise click.UsageError(f"{both[0]} has both a share to remove and a most to keep. Give one of them.")
    fixed = {cost: text for cost, text in most.items() if text is not None}
    varied = {cost: values for cost, values in rates.items() if values}
    if needed and not fixed and not varied:
        raise click.UsageError(
            "There is no limit to prune to. Give one or more, such as --prune-macs 0.5 or --max-size 2MB."
        )
    combinations = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
    return tuple(Budget.of({**combination, **fixed}) for combination in combinations)


def _rates(kind: CostKind, text: str | None) -> list[float]:
    try:
        rates = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a share to remove. Write 0.5, or 0.3,0.5 in a sweep.",
            param_hint=f"--prune-{kind.option}",
        ) from None
    if wrong := [rate for rate in rates if not 0 <= rate < 1]:
        raise click.BadParameter(
            f"{wrong[0]:g} is not a share to remove, which is at least 0 and less than 1. Write 0.5 for 50 %, or give "
            f"the most to keep with --max-{kind.option}.",
            param_hint=f"--prune-{kind.option}",
        )
    return rates


def _rate_option(kind: CostKind) -> Callable[[Command], Command]:
    words = f"Remove this share of the {kind.counted}, such as 0.5."
    return click.option(f"--prune-{kind.option}", metavar="RATE", help=words)


def _most_option(kind: CostKind) -> Callable[[Command], Command]:
    words = f"Keep at most N {kind.counted}, such as {kind.example}."
    return click.option(f"--max-{kind.option}", metavar="N", help=words)


_limit_options: list[Any] = [*(_rate_option(kind) for kind in KINDS), *(_most_option(kind) for kind in KINDS)]
limit_options = gathered("limits", _limit_options)
