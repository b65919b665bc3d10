"""Limit and Budget: what a structure may cost, always hard (R_f and R_p of Eq. 1 and 2, and any other cost).

A limit names its cost ("macs"), gives a `CostKind`, or holds a cost of one graph. `Budget.on(graph)` turns names and
kinds into costs of that graph; only then can structures be compared with the limits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.kinds import (
    COSTS,
    LATENCY,
    AnyCost,
    Builder,
    CostKind,
    CostTable,
    cost_kind,
    is_cost,
    kind_of_builder,
    require_cost_name,
)
from aacp.cost.quantities import amount
from aacp.disk.records import Record
from aacp.errors import InfeasibleBudget, InvalidOption
from aacp.user.sources import source_of
from aacp.user.values import as_float, cost_number, shown

TOLERANCE = 1e-9  # relative: a cost that equals its bound up to rounding meets it
# The advice for a latency that cannot be met: a runtime may be slow at widths that it has no kernels for.
SLOW_WIDTHS = 'use widths at which the runtime is fast, which --step auto (pruning_step="auto") finds on this machine'


def cost_of(
    function: Callable[[Structure], float], space: SearchSpace | ChannelGraph, name: str, unit: str = ""
) -> Cost:
    """A cost from a plain function of one structure, which is called once for each structure.

    Args:
        function: the cost of one structure.
        space: a search space, or the graph of a network: where the unpruned structure is taken from.
        name: the name of the cost.
        unit: the unit of the values, for people.
    """
    known: dict[bytes, float] = {}

    def rows(kept: NDArray[np.int64]) -> NDArray[np.float64]:
        keys = [row.tobytes() for row in kept]
        for key, row in zip(keys, kept, strict=True):
            if key not in known:
                known[key] = cost_number(name, function(Structure(row.tolist())))
        return np.array([known[key] for key in keys], dtype=np.float64)

    full = float(rows(np.asarray(space.full)[None])[0])
    return Cost(name, unit, full, rows, source_of(function))


def is_within(values: ArrayLike, bound: float) -> NDArray[np.bool_]:
    """Whether costs are at most a bound, up to rounding; not-a-number is not."""
    return np.asarray(np.asarray(values) <= bound + TOLERANCE * abs(bound))


@dataclass(frozen=True, init=False)
class Limit(Record):
    """A bound on one cost: the share of the unpruned cost to remove, or the most to keep.

    Args:
        cost: a name of the table of costs, a CostKind, a function from a graph to a cost, or a cost of one graph.
        pruning_rate: the share to remove, in [0, 1).
        at_most: the most to keep, in the unit of the cost. One of the two is given.
    """

    cost: AnyCost
    pruning_rate: float | None = None
    at_most: float | None = None

    def __init__(
        self, cost: str | CostKind | AnyCost | Builder, pruning_rate: float | None = None, at_most: float | None = None
    ) -> None:
        object.__setattr__(self, "cost", _cost(cost))
        object.__setattr__(self, "pruning_rate", pruning_rate)
        object.__setattr__(self, "at_most", at_most)
        self._check()

    def _check(self) -> None:
        name = self.cost.name
        rate = self._as_number("pruning_rate")
        most = self._as_number("at_most")
        if (rate is None) == (most is None):
            given = "neither was" if rate is None else "both were"
            raise InvalidOption(
                f"{name}: a limit is a pruning_rate or an at_most, but {given} given. Give one of them."
            )
        if rate is not None and not 0 <= rate < 1:
            raise InvalidOption(f"{name}: a pruning rate lies in [0, 1), but got {rate!r}. It is the share to remove.")
        if most is not None and not 0 < most < math.inf:
            unit = self.cost.unit or "the unit of the cost"
            raise InvalidOption(f"{name}: at_most is a positive number, but got {most!r}. Give it in {unit}.")
        if rate is not None and is_cost(self.cost) and not 0 < self.cost.full < math.inf:
            raise InvalidOption(
                f"{name}: the unpruned network costs {self.cost.full!r}, of which no share can be removed. Use at_most."
            )

    def _as_number(self, name: str) -> float | None:
        """The pruning rate or the bound as a plain number; numbers of numpy become one, as files hold them."""
        given = getattr(self, name)
        if given is None:
            return None
        found = as_float(given)
        if found is None:
            raise InvalidOption(f"{self.cost.name}: a limit is a number, but got {shown(given)}. Give a number.")
        object.__setattr__(self, name, found)
        return found

    @classmethod
    def of(cls, cost: str, value: float | str) -> Limit:
        """A limit as a mapping gives it: a number is the share to remove, text such as "60M" the most to keep."""
        kind = cost_kind(cost)
        if isinstance(value, str):
            return cls(kind, at_most=kind.parse(value))
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not 0 <= value < 1:
            raise InvalidOption(
                f"{cost}: {shown(value)} is not a share to remove, which lies in [0, 1). For the most to keep write "
                f'text, such as "{kind.example}".'
            )
        return cls(kind, pruning_rate=float(value))

    # -- in files -----------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """The limit as run.json holds it."""
        return {
            "cost": self.cost.name,
            "pruning_rate": self.pruning_rate,
            "at_most": self.at_most,
            "unit": self.cost.unit,
            "source": self.source,
        }

    @property
    def source(self) -> str:
        """Where the function of a user-defined cost is defined; empty for built-in costs."""
        return self.cost.source if isinstance(self.cost, (CostKind, Cost)) else ""

    @classmethod
    def _from_fields(cls, data: Mapping[str, Any], place: str) -> Limit:
        found = _WrittenLimit._from_fields(data, place)
        assert isinstance(found, _WrittenLimit)
        kind = COSTS.get(found.cost) or CostKind(found.cost, unit=found.unit, recorded_source=found.source)
        return cls(kind, found.pruning_rate, found.at_most)

    # -- for people ---------------------------------------------------------------------------------------------------

    @property
    def phrase(self) -> str:
        """The limit without its cost: "50 % less", "at most 2MB"."""
        if self.at_most is None:
            assert self.pruning_rate is not None
            return f"{100 * self.pruning_rate:.10g} % less"
        kind = self.cost if isinstance(self.cost, CostKind) else COSTS.get(self.cost.name, CostKind(self.cost.name))
        return f"at most {kind.write(self.at_most)}"

    def __str__(self) -> str:
        if self.pruning_rate is not None:
            return f"{self.cost.name} -{100 * self.pruning_rate:.4g} %"
        assert self.at_most is not None
        return f"{self.cost.name} <= {amount(self.at_most, self.cost.unit)}"

    def _reach(self, smallest: float) -> str:
        """The limit, and what the smallest structure reaches."""
        if self.pruning_rate is not None:
            wanted = f"a pruning rate of {self.pruning_rate:g}"
            reached = f"{1 - smallest / self.cost.full:.4g}"
        else:
            wanted = f"at most {amount(self.bound, self.cost.unit)}"
            reached = amount(smallest, self.cost.unit)
        if self.holds(smallest):
            return f"{self.cost.name}: {wanted} can be met (the smallest structure: {reached})"
        return f"{self.cost.name}: {wanted} cannot be met, since the smallest structure in this space reaches {reached}"

    def reached(self, structure: Structure) -> str:
        """The cost of a structure in the terms of the limit: "macs -51.4 %", "latency 0.62 ms"."""
        value = float(self.cost(np.asarray(structure)))
        if self.pruning_rate is None:
            return f"{self.cost.name} {amount(value, self.cost.unit)}"
        return f"{self.cost.name} {100 * (value / self.cost.full - 1):+.1f} %"

    # -- for structures -----------------------------------------------------------------------------------------------

    def on(self, graph: ChannelGraph, table: CostTable | None = None) -> Limit:
        """The same limit on the cost of one graph."""
        return replace(self, cost=self.cost.on(graph, table)) if isinstance(self.cost, CostKind) else self

    @property
    def bound(self) -> float:
        """The most a structure may cost."""
        if self.at_most is not None:
            return self.at_most
        assert self.pruning_rate is not None
        return (1 - self.pruning_rate) * self.cost.full

    def holds(self, values: ArrayLike) -> NDArray[np.bool_]:
        """Whether costs are within the bound; not-a-number is not."""
        return is_within(values, self.bound)

    def slack(self, structures: ArrayLike) -> NDArray[np.float64]:
        """The unused part of the bound, as a share of the unpruned cost (for an `at_most`, of the bound)."""
        whole = self.cost.full if self.pruning_rate is not None else self.bound
        return np.asarray((self.bound - self.cost(structures)) / whole, dtype=np.float64)


@dataclass(frozen=True)
class _WrittenLimit(Record):
    """The fields of a limit in run.json."""

    cost: str
    pruning_rate: float | None = None
    at_most: float | None = None
    unit: str = ""
    source: str = ""


def _cost(given: Any) -> AnyCost:
    """The cost of a limit, whichever way it was given."""
    if isinstance(given, str):
        return cost_kind(given)
    if isinstance(given, CostKind):
        return _kind(given)
    if is_cost(given):
        cost: AnyCost = given
        require_cost_name(cost.name)
        return cost
    if callable(given):
        return _kind(kind_of_builder(given))
    raise InvalidOption(
        f"{given!r} is not a cost. Give a name such as 'macs', a CostKind, or a cost made with cost_of(function, "
        "space, name)."
    )


def _kind(given: CostKind) -> CostKind:
    """A kind as given, or that of the table; files and reports would take another of the same name for the table's."""
    known = COSTS.get(given.name)
    if known is not None and given.build is not known.build:
        raise InvalidOption(
            f"Your cost is named {given.name!r}, which is the name of a built-in cost. Choose another name."
        )
    return known or given


@dataclass(frozen=True, init=False)
class Budget:
    """Limits that a structure must meet, all of them; without any, every structure does.

    `Budget(...)` keeps any limits in the order given, for a search of your own. `Budget.of` makes the budget of a run,
    which records its limits by name: one for each cost, in the order of the table, and no latency of your own.
    """

    limits: tuple[Limit, ...]

    def __init__(self, *limits: Limit) -> None:
        if wrong := [limit for limit in limits if not isinstance(limit, Limit)]:
            raise InvalidOption(
                f"A budget is made of limits, but got {wrong[0]!r}. Write Budget(Limit(cost, ...), ...)."
            )
        object.__setattr__(self, "limits", limits)

    @classmethod
    def of(cls, given: Budget | Mapping[str, float | str]) -> Budget:
        """The budget of a run, with its limits in the order of the table of costs.

        Args:
            given: a budget, or for each cost the share to remove or the most to keep: {"macs": 0.5, "params": "2M"}.
        """
        if not isinstance(given, (Budget, Mapping)):
            raise InvalidOption(f'{given!r} is not a budget. Give a Budget, or a mapping such as {{"macs": 0.5}}.')
        limits = given.limits if isinstance(given, Budget) else [Limit.of(cost, value) for cost, value in given.items()]
        order = list(COSTS)
        sorted_limits = sorted(limits, key=lambda limit: _place(limit.cost.name, order))
        names = [limit.cost.name for limit in sorted_limits]
        if twice := [name for name in names if names.count(name) > 1]:
            raise InvalidOption(f"The budget has {names.count(twice[0])} limits on {twice[0]}. Keep the tightest.")
        for limit in sorted_limits:
            if limit.cost.name == LATENCY and not isinstance(limit.cost, CostKind):
                raise InvalidOption(
                    "The limit on latency holds a cost of its own, but a run measures latency itself. Write "
                    "Limit('latency', ...), and give a table that you have as Plan(latency_table=...)."
                )
        return cls(*sorted_limits)

    @property
    def costs(self) -> tuple[str, ...]:
        """The names of the limited costs."""
        return tuple(limit.cost.name for limit in self.limits)

    def limit_on(self, cost: str) -> Limit | None:
        """The limit on a cost, by the name of the cost."""
        return next((limit for limit in self.limits if limit.cost.name == cost), None)

    def without(self, cost: str) -> Budget:
        """The limits on all other costs."""
        return Budget(*(limit for limit in self.limits if limit.cost.name != cost))

    def on(self, graph: ChannelGraph, table: CostTable | None = None) -> Budget:
        """The same limits on the costs of one graph; `table` is what a latency is predicted from."""
        return Budget(*(limit.on(graph, table) for limit in self.limits))

    def feasible(self, structures: ArrayLike) -> NDArray[np.bool_]:
        """Whether every limit holds (the constraints of Eq. 2): one truth value per structure."""
        rows = np.asarray(structures, dtype=np.int64)
        verdict = np.ones(rows.shape[:-1], dtype=bool)
        for limit in self.limits:
            verdict = verdict & limit.holds(limit.cost(rows))
        return verdict

    def check(self, space: SearchSpace) -> None:
        """Reject a budget that the smallest structure of the space does not meet."""
        # Paper: Algorithm 1 does not check whether its targets can be met, and does not end if they cannot.
        smallest = [float(limit.cost(np.asarray(space.smallest))) for limit in self.limits]
        found = sorted(zip(self.limits, smallest, strict=True), key=lambda pair: bool(pair[0].holds(pair[1])))
        if found and not found[0][0].holds(found[0][1]):
            reach = "; ".join(limit._reach(value) for limit, value in found)
            advice = SLOW_WIDTHS if found[0][0].cost.name == LATENCY else "use a finer pruning step"
            raise InfeasibleBudget(f"{reach}. Loosen the limit, or {advice}.")

    def __str__(self) -> str:
        return ", ".join(map(str, self.limits)) or "no limit"


def _place(name: str, order: list[str]) -> tuple[int, str]:
    """The place of a cost among limits: that of the table, then the user's by name."""
    return (order.index(name), "") if name in order else (len(order), name)
