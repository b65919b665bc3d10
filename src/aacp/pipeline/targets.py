"""Targets: the limits of a budget as they are asked for, in names, rates and quantities."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from aacp.channels import ChannelGraph
from aacp.cost.analytic import Cost, activation_bytes, macs, params, weight_bytes
from aacp.cost.budget import Budget, Limit
from aacp.errors import InvalidOption
from aacp.latency.table import LatencyTable
from aacp.runs.files import Target

Asked = Mapping[str, float | str]  # a share to remove, or as text the most to keep: {"macs": 0.5, "params": "2M"}

ANALYTIC: dict[str, Callable[[ChannelGraph], Cost]] = {
    "macs": macs,
    "params": params,
    "weight_bytes": weight_bytes,
    "activation_bytes": activation_bytes,
}
LATENCY = "latency"
COSTS = (*ANALYTIC, LATENCY)
_COUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
_BYTES = {"": 1.0, "B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
UNITS = {"macs": _COUNTS, "params": _COUNTS, "weight_bytes": _BYTES, "activation_bytes": _BYTES, LATENCY: _SECONDS}
EXAMPLES = {"macs": "60M", "params": "500k", "weight_bytes": "2MB", "activation_bytes": "512kB", LATENCY: "3ms"}


def targets(budget: Asked) -> tuple[Target, ...]:
    """The limits of a budget, in one order: of each cost the share to remove, or as text the most to keep."""
    return tuple(sorted((_target(*item) for item in budget.items()), key=lambda target: COSTS.index(target.cost)))


def _target(cost: str, asked: float | str) -> Target:
    if cost not in COSTS:
        raise InvalidOption(f"There is no cost {cost!r}. Choose from {', '.join(COSTS)}.")
    if isinstance(asked, str):
        return Target(cost, at_most=quantity(cost, asked))
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or not 0 <= asked < 1:
        raise InvalidOption(
            f"{cost}: {asked!r} is no share to remove, which lies in [0, 1). For the most to keep write it as text, "
            f'such as "{EXAMPLES[cost]}".'
        )
    return Target(cost, pruning_rate=float(asked))


def quantity(cost: str, text: str) -> float:
    """A number with a unit, in the unit of the cost: "60M" MACs, "2MB"."""
    units = UNITS[cost]
    found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if found is None or found[2] not in units or not float(found[1]):
        known = ", ".join(unit or "no unit" for unit in sorted(units, key=len, reverse=True))
        raise InvalidOption(f"{cost}: {text!r} is no quantity. Write a positive number and one of {known}.")
    return float(found[1]) * units[found[2]]


def in_words(target: Target) -> str:
    """A limit as it would be asked for: "50 % less", "at most 2MB"."""
    if target.at_most is None:
        assert target.pruning_rate is not None
        return f"{100 * target.pruning_rate:.10g} % less"
    numbers = {unit: f"{target.at_most / factor:.10g}" for unit, factor in UNITS[target.cost].items()}
    unit = min(numbers, key=lambda unit: len(numbers[unit]))  # the one that it was most likely written in
    return f"at most {numbers[unit]}{unit}"


def cost_of_name(name: str, graph: ChannelGraph, table: LatencyTable | None = None) -> Cost:
    """A cost of a graph; a latency is what the table predicts."""
    if name != LATENCY:
        return ANALYTIC[name](graph)
    assert table is not None
    return table.cost(graph)


def budget_of(asked: tuple[Target, ...], graph: ChannelGraph, table: LatencyTable | None = None) -> Budget:
    """The limits on the costs of a graph."""
    limits = (Limit(cost_of_name(t.cost, graph, table), t.pruning_rate, t.at_most) for t in asked)
    return Budget(*limits)
