"""Limits as options: for each cost a share to remove, or the most to keep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import click

from aacp.commands.options import Command, gathered

if TYPE_CHECKING:
    from aacp.runs.files import Target

SHORT = {
    "macs": "macs",
    "params": "params",
    "size": "weight_bytes",
    "memory": "activation_bytes",
    "latency": "latency",
}
WORDS = {
    "macs": "multiply-accumulates for one input",
    "params": "parameters",
    "size": "bytes of weights",
    "memory": "bytes of activations at any one time",
    "latency": "seconds for a batch (see --runtime)",
}


@dataclass(frozen=True)
class Limits:
    """What is asked of each cost, as it was written: a list of shares to remove, and the most to keep."""

    prune_macs: str | None
    prune_params: str | None
    prune_size: str | None
    prune_memory: str | None
    prune_latency: str | None
    max_macs: str | None
    max_params: str | None
    max_size: str | None
    max_memory: str | None
    max_latency: str | None

    def targets(self, needed: bool = True) -> tuple[Target, ...]:
        """The limits of one run."""
        budgets = self.budgets(needed)
        if len(budgets) > 1:
            raise click.UsageError("Several rates were given for one limit. Give one, or use aacp sweep.")
        return budgets[0]

    def budgets(self, needed: bool = True) -> tuple[tuple[Target, ...], ...]:
        """Every combination of the rates; if they are needed, there must be some."""
        rates = {cost: _rates(name, getattr(self, f"prune_{name}")) for name, cost in SHORT.items()}
        most = {cost: getattr(self, f"max_{name}") for name, cost in SHORT.items()}
        if both := [cost for cost in rates if rates[cost] and most[cost]]:
            raise click.UsageError(f"{both[0]} has both a share to remove and a most to keep. Give one of them.")
        fixed = {cost: text for cost, text in most.items() if text is not None}
        varied = {cost: values for cost, values in rates.items() if values}
        if needed and not fixed and not varied:
            raise click.UsageError(
                "There is no limit to prune to. Give one or more, such as --prune-macs 0.5 or --max-size 2MB."
            )
        combined = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
        from aacp.pipeline.targets import targets  # brings torch: not for what is refused above

        return tuple(targets({**rate, **fixed}) for rate in combined)


def _rates(name: str, text: str | None) -> list[float]:
    try:
        rates = [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no share to remove. Write 0.5, or 0.3,0.5 in a sweep.", param_hint=f"--prune-{name}"
        ) from None
    if wrong := [rate for rate in rates if not 0 <= rate < 1]:
        raise click.BadParameter(
            f"{wrong[0]:g} is no share to remove, which is at least 0 and less than 1. Write 0.5 for 50 %, or give the "
            f"most to keep with --max-{name}.",
            param_hint=f"--prune-{name}",
        )
    return rates


def _rate_option(name: str) -> Callable[[Command], Command]:
    return click.option(f"--prune-{name}", metavar="RATE", help=f"Remove this share of the {WORDS[name]}, such as 0.5.")


def _most_option(name: str, example: str) -> Callable[[Command], Command]:
    return click.option(f"--max-{name}", metavar="N", help=f"Keep at most so many {WORDS[name]}, such as {example}.")


limits = gathered(
    Limits,
    [
        *(_rate_option(name) for name in SHORT),
        _most_option("macs", "60M"),
        _most_option("params", "500k"),
        _most_option("size", "2MB"),
        _most_option("memory", "512kB"),
        _most_option("latency", "3ms"),
    ],
)
