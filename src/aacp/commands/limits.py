"""Limits as options: for each kind of cost a share to remove, or the most to keep."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import click

from aacp.commands.gathering import Command, Given, gathered
from aacp.cost.budget import Budget, Limit
from aacp.cost.kinds import COSTS, CostKind
from aacp.errors import InvalidOption

KINDS = [kind for kind in COSTS.values() if kind.option]
COST_NAMES = {kind.option: kind.name for kind in KINDS}  # the cost of each --prune-... and --max-...


def budget_of(given: Given, *, needed: bool = True) -> Budget:
    """The budget of one run; `needed` rejects a command without limits."""
    budgets = budgets_of(given, needed=needed)
    if len(budgets) > 1:
        raise click.UsageError("Several rates were given for one limit. Give one, or use aacp sweep.")
    return budgets[0]


def budgets_of(given: Given, *, needed: bool = True) -> tuple[Budget, ...]:
    """A budget for every combination of the rates; `needed` rejects a command without limits."""
    choices = [limits for kind in KINDS if (limits := _limits(kind, given))]
    if needed and not choices:
        raise click.UsageError(
            "There is no limit to prune to. Give one or more, such as --prune-macs 0.5 or --max-size 2MB."
        )
    return tuple(Budget.of(Budget(*limits)) for limits in product(*choices))


def _limits(kind: CostKind, given: Given) -> list[Limit]:
    """The limits on one kind of cost, of which each budget of a sweep has one."""
    rate_option, most_option = f"--prune-{kind.option}", f"--max-{kind.option}"
    rates, most = given[f"prune_{kind.option}"], given[f"max_{kind.option}"]
    if rates is not None and most is not None:
        raise click.UsageError(f"{rate_option} and {most_option} exclude each other. Give one of them.")
    if rates is None and most is None:
        return []
    try:
        if most is not None:
            return [Limit(kind, at_most=kind.parse(most))]
        return [Limit(kind, _number(rate)) for rate in rates.split(",")]
    except InvalidOption as error:
        if most is not None:
            raise click.BadParameter(str(error), param_hint=most_option) from error
        advice = f"Write 0.5 to remove 50 %, or give the most to keep with {most_option}."
        raise click.BadParameter(f"{error} {advice}", param_hint=rate_option) from error


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidOption(f"{text!r} is not a share to remove, or in a sweep several such as 0.3,0.5.") from None


def _rate_option(kind: CostKind) -> Callable[[Command], Command]:
    words = f"Remove this share of the {kind.counted}, such as 0.5."
    return click.option(f"--prune-{kind.option}", metavar="RATE", help=words)


def _most_option(kind: CostKind) -> Callable[[Command], Command]:
    words = f"Keep at most N {kind.counted}, such as {kind.example}."
    return click.option(f"--max-{kind.option}", metavar="N", help=words)


_limit_options: list[Any] = [*(_rate_option(kind) for kind in KINDS), *(_most_option(kind) for kind in KINDS)]
limit_options = gathered("limits", _limit_options)
