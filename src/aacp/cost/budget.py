"""Limit and Budget: what a structure may cost, always hard (R_f and R_p of Eq. 1 and 2, and any other cost)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.cost.analytic import Cost
from aacp.errors import InfeasibleBudget, InvalidOption
from aacp.space import SearchSpace
from aacp.structure import Structure

TOLERANCE = 1e-9  # relative: a cost that equals its bound up to rounding meets it


class AnyCost(Protocol):
    """What a limit needs of a cost: a name, a unit, the unpruned value, and to be called on structures."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def full(self) -> float: ...

    def __call__(self, structures: ArrayLike) -> NDArray[Any]: ...


def cost_of(function: Callable[[Structure], float], space: SearchSpace, name: str, unit: str = "") -> Cost:
    """A cost from a plain function of one structure; each structure is worked out once."""
    known: dict[bytes, float] = {}

    def rows(kept: NDArray[np.int64]) -> NDArray[np.float64]:
        keys = [row.tobytes() for row in kept]
        for key, row in zip(keys, kept, strict=True):
            if key not in known:
                known[key] = float(function(Structure(row.tolist())))
        return np.array([known[key] for key in keys], dtype=np.float64)

    return Cost(name, unit, float(rows(space.counts(space.levels - 1)[None])[0]), rows)


def amount(value: float, unit: str = "") -> str:
    """A cost for people to read: seconds as milliseconds, everything else as a number without its unit."""
    if unit == "s":
        return f"{1e3 * value:.3g} ms"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.6g}"


@dataclass(frozen=True)
class Limit:
    """A bound on one cost: `pruning_rate` of the unpruned network's cost removed, or `at_most` so much of it left."""

    cost: AnyCost
    pruning_rate: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if not all(hasattr(self.cost, field) for field in ("name", "unit", "full")) or not callable(self.cost):
            raise InvalidOption(
                f"{self.cost!r} is not a cost. Make one of a function with cost_of(function, space, name)."
            )
        name, rate, most = self.cost.name, self.pruning_rate, self.at_most
        if any(not isinstance(value, (int, float, np.number, type(None))) for value in (rate, most)):
            raise InvalidOption(
                f"{name}: a limit is a number, but got {rate if most is None else most!r}. Give a number."
            )
        if (rate is None) == (most is None):
            given = "neither was" if rate is None else "both were"
            raise InvalidOption(
                f"{name}: a limit is a pruning_rate or an at_most, but {given} given. Give one of them."
            )
        if rate is not None and not 0 <= rate < 1:
            raise InvalidOption(f"{name}: a pruning rate lies in [0, 1), but got {rate!r}. It is the share to remove.")
        if most is not None and not 0 < most < math.inf:
            raise InvalidOption(f"{name}: at_most is a positive number, but got {most!r}. Give it in {self._unit}.")
        if rate is not None and not 0 < self.cost.full < math.inf:
            raise InvalidOption(
                f"{name}: the unpruned network costs {self.cost.full!r}, of which no share can be removed. Use at_most."
            )

    @property
    def bound(self) -> float:
        """The most a structure may cost."""
        if self.at_most is not None:
            return self.at_most
        assert self.pruning_rate is not None
        return (1 - self.pruning_rate) * self.cost.full

    def holds(self, values: ArrayLike) -> NDArray[np.bool_]:
        """Whether costs are within the bound; not-a-number is not."""
        return np.asarray(np.asarray(values) <= self.bound + TOLERANCE * abs(self.bound))

    def slack(self, structures: ArrayLike) -> NDArray[np.float64]:
        """What is left of the bound, as a share of the unpruned cost (of the bound, where there is none)."""
        whole = self.cost.full if self.pruning_rate is not None else self.bound
        return np.asarray((self.bound - self.cost(structures)) / whole, dtype=np.float64)

    def __str__(self) -> str:
        if self.pruning_rate is not None:
            return f"{self.cost.name} -{100 * self.pruning_rate:.4g} %"
        return f"{self.cost.name} <= {self._amount(self.bound)}"

    @property
    def _unit(self) -> str:
        return self.cost.unit or "the unit of the cost"

    def _reach(self, smallest: float) -> str:
        """What was asked for and what the smallest structure gives, in words."""
        if self.pruning_rate is not None:
            asked, reached = f"a pruning rate of {self.pruning_rate:g}", f"{1 - smallest / self.cost.full:.4g}"
        else:
            asked, reached = f"at most {self._amount(self.bound)}", self._amount(smallest)
        verdict = (
            f"which can be met (the smallest structure: {reached})"
            if self.holds(smallest)
            else f"but the smallest structure in this space reaches {reached}"
        )
        return f"{self.cost.name}: {asked} was asked for, {verdict}"

    def _amount(self, value: float) -> str:
        return amount(value, self.cost.unit) if self.cost.unit == "s" else f"{amount(value)} {self._unit}"


@dataclass(frozen=True, init=False)
class Budget:
    """Limits that a structure must meet, all of them; without any, every structure does."""

    limits: tuple[Limit, ...]

    def __init__(self, *limits: Limit) -> None:
        if wrong := [limit for limit in limits if not isinstance(limit, Limit)]:
            raise InvalidOption(
                f"A budget is made of limits, but got {wrong[0]!r}. Write Budget(Limit(cost, ...), ...)."
            )
        object.__setattr__(self, "limits", limits)

    def feasible(self, structures: ArrayLike) -> NDArray[np.bool_]:
        """Whether every limit holds (the constraints of Eq. 2): one truth value per structure."""
        rows = np.asarray(structures, dtype=np.int64)
        verdict = np.ones(rows.shape[:-1], dtype=bool)
        for limit in self.limits:
            verdict = verdict & limit.holds(limit.cost(rows))
        return verdict

    def check(self, space: SearchSpace) -> None:
        """Refuse a budget that the smallest structure of the space does not meet."""
        # Paper: Algorithm 1 never asks whether its targets can be met, and does not end when they cannot.
        smallest = [float(limit.cost(np.asarray(space.smallest))) for limit in self.limits]
        found = sorted(zip(self.limits, smallest, strict=True), key=lambda pair: bool(pair[0].holds(pair[1])))
        if found and not found[0][0].holds(found[0][1]):
            reach = "; ".join(limit._reach(value) for limit, value in found)
            raise InfeasibleBudget(f"{reach}. Loosen the limit, or use a finer pruning step.")

    def slack(self, structure: Structure) -> dict[str, float]:
        """What is left of each limit, by the limit's own words."""
        return {str(limit): float(limit.slack(np.asarray(structure))) for limit in self.limits}

    def __str__(self) -> str:
        return ", ".join(map(str, self.limits)) or "no limit"
