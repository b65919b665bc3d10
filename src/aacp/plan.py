"""Plan: what is asked of a pruning run, apart from the network and the data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aacp.errors import InvalidOption
from aacp.records import Target
from aacp.space import PruningStep
from aacp.train.recipe import FINETUNE, Recipe

COSTS = ("macs", "params", "activation_bytes")


@dataclass(frozen=True)
class Plan:
    """Limits, how to search for a structure within them, and how to train it."""

    limits: tuple[Target, ...]
    pruning_step: PruningStep = 1 / 8
    method: str = "default"
    evaluations: int = 200
    recipe: Recipe | None = FINETUNE  # None: the network is not trained
    from_scratch: bool = False
    importance: str | Callable[..., Any] = "l1"
    calibration_images: int = 4096
    frozen: tuple[str, ...] = ()
    scope: str = "all"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.limits:
            raise InvalidOption('A budget without limits prunes nothing. Give one, such as {"macs": 0.5}.')
        for target in self.limits:
            if target.cost not in COSTS:
                raise InvalidOption(f"There is no cost {target.cost!r}. Choose from {', '.join(COSTS)}.")


def targets(rates: Mapping[str, float | None], at_most: Mapping[str, float | None] | None = None) -> tuple[Target, ...]:
    """Limits from rates (shares to remove) and from values not to be exceeded, by the names of costs."""
    removed = tuple(Target(cost, pruning_rate=rate) for cost, rate in rates.items() if rate is not None)
    kept = tuple(Target(cost, at_most=value) for cost, value in (at_most or {}).items() if value is not None)
    return removed + kept
