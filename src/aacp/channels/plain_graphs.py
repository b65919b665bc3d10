"""Channel graphs from the plain data of a file, which are checked before anything is built from them.

A file may come from anybody. Its numbers decide how much memory a graph takes and which of its parts refer to which
others, so all of them are compared with limits and with each other. Every failure is a ValueError with a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from aacp.channels.elements import Activation, ChannelGroup, HardCodedSize, Layer, Tensor
from aacp.channels.lanes import from_runs, uneven_lane
from aacp.disk.records import Integer, Requirement, read_fields, require

MAX_UNITS = 10_000_000  # of all groups together
MAX_INDICES = 50_000_000  # of all lanes together
MAX_LANE_SIZES = 20_000_000  # lanes times groups: a matrix of this size is built
MAX_LIFETIMES = 50_000_000  # activations times steps: a matrix of this size is built
FORMS = ("module", "exported")
Form = Annotated[str, Requirement(" or ".join(FORMS), lambda form: form in FORMS)]
Run = tuple[Integer, Integer, Integer]  # first, step and count of a stretch of a lane


@dataclass(frozen=True)
class WrittenGraph:
    """The fields of a ChannelGraph as a file holds them: with the runs of the lanes."""

    model: str
    form: Form
    notes: tuple[str, ...]
    groups: tuple[ChannelGroup, ...]
    lanes: tuple[tuple[Run, ...], ...]
    layers: tuple[Layer, ...]
    tensors: tuple[Tensor, ...]
    sizes: tuple[HardCodedSize, ...]
    activations: tuple[Activation, ...]
    ties: tuple[tuple[str, ...], ...] = ()  # older files have none
    parts: tuple[str, ...] = ()  # nor these


def graph_fields(data: Any) -> dict[str, Any]:
    """The fields of a ChannelGraph from what its `to_json` returned; data that do not describe a graph are rejected."""
    require(isinstance(data, Mapping), "it is not an object")
    graph = WrittenGraph(**read_fields(WrittenGraph, data))
    names = [group.name for group in graph.groups]
    require(len(set(names)) == len(names), "two of its groups have the same name")
    _require_ties(graph)
    _require_lanes(graph)
    _require_references(graph)
    _require_lifetimes(graph.activations)
    lanes = tuple(from_runs(runs) for runs in graph.lanes)
    uneven = uneven_lane(lanes, [group.width for group in graph.groups])
    require(uneven is None, f"lane {uneven} holds the units of a group unequally often")
    return {**vars(graph), "lanes": lanes}


def _require_ties(graph: WrittenGraph) -> None:
    """Reject ties that a search cannot use."""
    free = {group.name for group in graph.groups if group.frozen is None}
    tied = [name for tie in graph.ties for name in tie]
    fits = free.issuperset(tied) and len(set(tied)) == len(tied) and all(len(tie) > 1 for tie in graph.ties)
    require(fits, "its ties do not name several free groups, each once")


def _require_lanes(graph: WrittenGraph) -> None:
    """Reject lanes that are too long, or refer to units that no group has."""
    units = sum(group.width for group in graph.groups)
    require(units <= MAX_UNITS, f"its groups have {units:,} units, more than {MAX_UNITS:,}")
    require(len(graph.lanes) * len(graph.groups) <= MAX_LANE_SIZES, "it has too many lanes and groups")
    total = 0
    for position, runs in enumerate(graph.lanes):
        for first, step, count in runs:
            last = first + step * max(0, count - 1)
            fits = count >= 0 and min(first, last) >= -1 and max(first, last) < units
            require(fits, f"lanes[{position}] refers to units that no group has")
            total += count
    require(total <= MAX_INDICES, f"its lanes have {total:,} indices, more than {MAX_INDICES:,}")


def _require_references(graph: WrittenGraph) -> None:
    """Reject parts that refer to lanes that do not exist, and tensors without a lane for each dimension."""
    used: dict[str, list[tuple[int | None, ...]]] = {
        "layers": [(layer.input, layer.output, *layer.macs_lanes) for layer in graph.layers],
        "tensors": [tensor.lanes for tensor in graph.tensors],
        "sizes": [(size.lane,) for size in graph.sizes],
        "activations": [activation.lanes for activation in graph.activations],
    }
    for part, items in used.items():
        for position, lanes in enumerate(items):
            known = all(lane is None or lane < len(graph.lanes) for lane in lanes)
            require(known, f"{part}[{position}] refers to a lane that does not exist")
    for position, tensor in enumerate(graph.tensors):
        same = len(tensor.shape) == len(tensor.lanes)
        require(same, f"tensors[{position}] has {len(tensor.shape)} dimensions and {len(tensor.lanes)} lanes")


def _require_lifetimes(activations: tuple[Activation, ...]) -> None:
    """Reject activations that end before they begin, or last for more steps than can be added up."""
    for position, activation in enumerate(activations):
        born, dies = activation.born, activation.dies
        require(born <= dies, f"activations[{position}] is born at step {born:,} and dies at step {dies:,}")
    steps = 2 + max((activation.dies for activation in activations), default=0)
    fits = steps * len(activations) <= MAX_LIFETIMES
    require(fits, f"its {len(activations):,} activations last for {steps:,} steps, more than can be added up")
