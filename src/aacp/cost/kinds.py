"""The table of cost kinds: what each cost is called, how its quantities are written, how it is computed for a graph.

Limits, command-line options, run files and reports are all derived from `COSTS`. A cost of your own is a `CostKind`
that you give to `Limit`. Mappings such as {"macs": 0.5}, `Plan.shrink` and the command line only take names of the
table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from numpy.typing import ArrayLike, NDArray

from aacp.channels.graph import ChannelGraph
from aacp.cost.analytic import Cost, activation_bytes, channel_count, macs, params, weight_bytes
from aacp.cost.file_size import file_size
from aacp.errors import InvalidOption
from aacp.user.options import advice
from aacp.user.sources import source_of
from aacp.user.values import shown

COUNTS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
BYTES = {"": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
QUANTITY = re.compile(r"((?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)")  # a number and its unit
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6}


# Fields that evaluation.json holds beside the costs, which stand there by their names.
RESERVED_NAMES = ("test", "holdout", "costs", "file_bytes")


class AnyCost(Protocol):
    """What a limit needs of a cost: a name, a unit, the unpruned value, and to be called on structures."""

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> str: ...

    @property
    def full(self) -> float: ...

    def __call__(self, structures: ArrayLike) -> NDArray[Any]: ...


Builder = Callable[[ChannelGraph], AnyCost]


class CostTable(Protocol):
    """Measurements that predict a cost of a graph, such as a LatencyTable."""

    def cost(self, graph: ChannelGraph) -> Cost: ...


def require_cost_name(name: str) -> None:
    """Reject a name that cannot be the name of a field in files or a part of the name of a folder."""
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise InvalidOption(
            f"A cost cannot be named {name!r}. Start with a letter, and use only letters, digits and underscores."
        )
    if name in RESERVED_NAMES:
        raise InvalidOption(f"A cost cannot be named {name!r}, which is another field of evaluation.json. Rename it.")


@dataclass(frozen=True)
class CostKind:
    """One kind of cost, not yet for a particular graph.

    Args:
        name: the name in budgets and files, such as "energy".
        build: computes the cost of a graph; None for latency, which a measured table predicts.
        unit: the unit of the values, for people.
        words: its name in reports; by default `name` with spaces.
        suffixes: what may follow a number in a quantity such as "60M", and the factor it stands for.
        option: the word in --prune-OPTION and --max-OPTION; without one the command line does not offer the kind.
        counted: what the command line's help says is counted.
        example: a quantity, as help and messages show it.
        recorded_source: where `build` was defined, in a kind that was read from a file and has no `build`.
    """

    name: str
    build: Builder | None = field(default=None, compare=False, repr=False)
    unit: str = ""
    words: str = field(default="", compare=False)
    suffixes: Mapping[str, float] = field(default_factory=lambda: COUNTS, compare=False, repr=False)
    option: str = field(default="", compare=False, repr=False)
    counted: str = field(default="", compare=False, repr=False)
    example: str = field(default="60M", compare=False, repr=False)
    recorded_source: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        require_cost_name(self.name)

    @property
    def source(self) -> str:
        """Where the function of a user-defined cost is defined; empty for built-in kinds."""
        if self.build is None or COSTS.get(self.name) is self:
            return self.recorded_source
        return source_of(self.build)

    # A limit may hold a kind in the place of a cost of a graph. A kind has no values, so reading them raises an error.

    @property
    def full(self) -> float:
        self._require_graph()

    def __call__(self, structures: ArrayLike) -> NDArray[Any]:
        self._require_graph()

    def _require_graph(self) -> NoReturn:
        raise InvalidOption(f"The cost {self.name!r} is not computed for a network yet. Use budget.on(graph).")

    def on(self, graph: ChannelGraph, table: CostTable | None = None) -> AnyCost:
        """The cost of the structures of a graph; `table` is what a latency is predicted from."""
        if self.name == LATENCY and table is not None:
            return table.cost(graph)
        if self.build is None:
            advice = "Give a latency table" if self.name == LATENCY else f"Give CostKind({self.name!r}, build=...)"
            raise InvalidOption(f"There is nothing to compute the cost {self.name!r} with. {advice}.")
        cost = self.build(graph)
        if not is_cost(cost) or cost.name != self.name:
            raise InvalidOption(
                f"The function that builds the cost {self.name!r} returned {cost!r}. "
                f"Return a cost of that name, such as aacp.cost_of(function, graph, {self.name!r})."
            )
        return cost

    def parse(self, text: str) -> float:
        """A number with a suffix, in the unit of the cost: "60M" MACs are 6e7.

        Upper and lower case are the same, unless the cost has suffixes that differ in nothing else.
        """
        found = QUANTITY.fullmatch(text.strip())
        suffix = None if found is None else self._suffix_like(found[2])
        if found is None or suffix is None or not float(found[1]):
            known = ", ".join(suffix or "no unit" for suffix in sorted(self.suffixes, key=len, reverse=True))
            share = ' A share to remove is a number without a sign: 0.5, not "50%".' if "%" in text else ""
            raise InvalidOption(
                f"{self.name}: {shown(text)} is not a quantity. Write a positive number and one of {known}.{share}"
            )
        return float(found[1]) * self.suffixes[suffix]

    def _suffix_like(self, given: str) -> str | None:
        """The suffix that a text has, or the only one that differs from it in upper and lower case alone."""
        alike = [suffix for suffix in self.suffixes if suffix.lower() == given.lower()]
        return given if given in alike else alike[0] if len(alike) == 1 else None

    def write(self, value: float) -> str:
        """A quantity as `parse` reads it, with the suffix that makes it shortest."""
        numbers = {suffix: f"{value / factor:.10g}" for suffix, factor in self.suffixes.items()}
        suffix = min(numbers, key=lambda suffix: len(numbers[suffix]))
        return f"{numbers[suffix]}{suffix}"


LATENCY = "latency"
FILE_SIZE = "file_size"
COSTS: dict[str, CostKind] = {
    kind.name: kind
    for kind in (
        CostKind("macs", macs, "MACs", "MACs", COUNTS, "macs", "multiply-accumulates for one input", "60M"),
        CostKind("params", params, "parameters", "parameters", COUNTS, "params", "parameters", "500k"),
        CostKind(
            "channel_count", channel_count, "channels", "channels", COUNTS, "channels",
            "output channels of all convolutions", "1500",
        ),
        CostKind("weight_bytes", weight_bytes, "bytes", "bytes of weights", BYTES, example="2MB"),
        CostKind(
            FILE_SIZE, file_size, "bytes", "bytes of the file", BYTES, "size",
            "bytes of the network's file (pruned.safetensors), with its header", "2MB",
        ),
        CostKind(
            "activation_bytes", activation_bytes, "bytes", "bytes of activations", BYTES, "memory",
            "bytes of activations at any one time", "512kB",
        ),
        CostKind(LATENCY, None, "s", "latency", SECONDS, "latency", "seconds for a batch (see --runtime)", "3ms"),
    )
}  # fmt: skip


def cost_kind(name: str) -> CostKind:
    """A kind of the table by name."""
    if name not in COSTS:
        is_flops = "flop" in str(name).lower()
        counted = " FLOPs are counted as MACs, of which a convolution has half as many." if is_flops else ""
        named = next((kind.name for kind in COSTS.values() if kind.option and kind.option == name), name)
        known = advice(named, COSTS, ", or give a limit on a CostKind of your own")
        raise InvalidOption(f"There is no cost {name!r}. {known}{counted}")
    return COSTS[name]


def cost_words(name: str) -> str:
    """What a cost is called in reports, also one that the table does not have."""
    words = COSTS[name].words if name in COSTS else ""
    return words or name.replace("_", " ")


def cost_unit(name: str) -> str:
    """The unit of a cost of the table; empty for others."""
    return COSTS[name].unit if name in COSTS else ""


def computed_costs(graph: ChannelGraph) -> tuple[Cost, ...]:
    """The costs of the table that evaluations record, in its order: all but latency and the size of the file.

    The size of the file depends on the version of its format, too, so it is recorded beside a limit alone.
    """
    built = [kind.build(graph) for kind in COSTS.values() if kind.build is not None and kind.name != FILE_SIZE]
    return tuple(cost for cost in built if isinstance(cost, Cost))


def is_cost(value: Any) -> bool:
    """True for a cost of a graph; a function that builds one has no `full`."""
    if isinstance(value, CostKind):
        return False
    return callable(value) and all(hasattr(value, name) for name in ("name", "unit", "full"))


def kind_of_builder(build: Builder) -> CostKind:
    """The kind whose costs a function builds: one of the table, or a new one with the function's name."""
    known = [kind for kind in COSTS.values() if kind.build is build]
    return known[0] if known else CostKind(getattr(build, "__name__", type(build).__name__), build)
