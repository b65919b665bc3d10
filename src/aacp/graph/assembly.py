"""Assembly: build the groups, lanes and layers of a ChannelGraph from channel ids and their ties."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn

from aacp.channels.elements import Activation, ChannelGroup, HardCodedSize, Layer, Member, Tensor
from aacp.channels.graph import ChannelGraph
from aacp.channels.lanes import Lane
from aacp.graph.labels import Ids, Labels, core, ids_of, varying
from aacp.graph.propagation import Propagation, TracedLayer
from aacp.graph.sizes import TracedSize
from aacp.pytorch.internals import storage_number
from aacp.pytorch.modules import named_tensors

Mask = NDArray[np.bool_]


@dataclass
class LaneTable:
    """The lanes of the graph to be built, each once, as roots of channel ids."""

    roots: Ids
    lanes: list[Ids] = field(default_factory=list)
    _index: dict[bytes, int] = field(default_factory=dict)

    def add(self, ids: Ids) -> int:
        """The number of the lane with these ids; a new lane is appended."""
        lane = np.where(ids >= 0, self.roots[np.maximum(ids, 0)], -1)
        key = lane.tobytes()
        if key not in self._index:
            self._index[key] = len(self.lanes)
            self.lanes.append(lane)
        return self._index[key]


@dataclass(frozen=True)
class Assembled:
    """A channel graph, and the unit of every channel id (-1: it belongs to no unit and always stays)."""

    graph: ChannelGraph
    unit_of_id: Ids


def assemble(p: Propagation, model: nn.Module, sizes: Sequence[TracedSize], form: str) -> Assembled:
    """Number the units group by group and express every lane in units.

    Args:
        p: the finished propagation.
        model: the network.
        sizes: the numbers in modules that depend on lanes.
        form: "module" or "exported", as for `trace`.
    """
    roots = p.ties.roots()
    reasons = p.ties.reasons()
    table = LaneTable(roots)
    layers = [_layer(table, layer) for layer in p.layers]
    is_channel = np.zeros(len(roots) + 1, dtype=bool)  # the last entry is for -1
    for layer in layers:
        if layer.output is not None:
            is_channel[table.lanes[layer.output]] = True
    tensors = [_tensor(table, p, name, value, is_channel) for name, value in named_tensors(model)]
    used = [(size, table.add(size.lane)) for size in sizes]
    activations = list(_activations(table, p, model))
    groups, units = _groups(table, layers, tensors, reasons)
    unit_of_root = np.full(len(roots) + 1, -1, dtype=np.int64)
    for unit, root in enumerate(units):
        unit_of_root[root] = unit
    graph = ChannelGraph(
        model=type(model).__name__,
        groups=groups,
        lanes=tuple(unit_of_root[lane] for lane in table.lanes),  # -1 selects the last entry, which is -1
        layers=tuple(layers),
        tensors=tuple(tensors),
        activations=tuple(activations),
        form=form,
        notes=tuple(dict.fromkeys(p.notes)),
    )
    return Assembled(replace(graph, sizes=tuple(_sizes(graph, used))), unit_of_root[roots])


def _layer(table: LaneTable, layer: TracedLayer) -> Layer:
    def lane(ids: Ids | None) -> int | None:
        return None if ids is None else table.add(ids)

    return Layer(
        name=layer.name,
        kind=layer.kind,
        kernel=layer.kernel,
        output_size=layer.output_size,
        input=lane(layer.input),
        output=lane(layer.output),
        macs_per_channel=layer.macs_per_channel,
        macs_lanes=tuple(table.add(ids) for ids in layer.macs_lanes),
    )


def _tensor(table: LaneTable, p: Propagation, name: str, value: torch.Tensor, is_channel: Mask) -> Tensor:
    by_dim: dict[int, int] = {}
    for label in p.weights.get(name, ()):
        (dim,) = varying(label)
        ids = ids_of(label)
        if is_channel[table.roots[ids]].any():  # not for kernel sizes and other dimensions without channels
            by_dim[dim] = table.add(ids)
    lanes = tuple(by_dim.get(dim) for dim in range(value.dim()))
    return Tensor(name, tuple(value.shape), lanes, isinstance(value, nn.Parameter), value.element_size())


def _sizes(graph: ChannelGraph, used: Sequence[tuple[TracedSize, int]]) -> Iterator[HardCodedSize]:
    """The sizes whose lane contains units."""
    for size, lane in used:
        if (graph.lanes[lane] >= 0).any():
            source, factor = size.source, size.factor
            yield HardCodedSize(source.module, source.path, lane, factor.numerator, factor.denominator)


# -- groups -----------------------------------------------------------------------------------------------------------


def _groups(
    table: LaneTable, layers: Sequence[Layer], tensors: Sequence[Tensor], reasons: dict[int, str]
) -> tuple[tuple[ChannelGroup, ...], list[int]]:
    """Groups in the order of the layers that produce them, and the roots of their units in order."""
    occurrence = _occurrences(table)
    members: dict[int, list[Member]] = {}
    for tensor in tensors:
        for dim, index in enumerate(tensor.lanes):
            if index is not None:
                members.setdefault(index, []).append(Member(tensor.name, dim))
    groups: list[ChannelGroup] = []
    units: list[int] = []
    seen: set[int] = set()
    taken: set[str] = set()
    for layer in layers:
        if layer.output is None:
            continue
        lane = table.lanes[layer.output]
        channels = Counter(lane.tolist())
        fresh = [root for root in dict.fromkeys(lane.tolist()) if root >= 0 and root not in seen]
        by_signature: dict[tuple[Occurrences, str | None], list[int]] = {}
        for root in fresh:
            by_signature.setdefault((occurrence[root], reasons.get(root)), []).append(root)
        for (signature, reason), roots in by_signature.items():
            found = tuple(member for index, _ in signature for member in members.get(index, []))
            name = _name(layer.name, lane, roots, taken, len(by_signature) > 1)
            groups.append(ChannelGroup(name, len(roots), channels[roots[0]], found, reason))
            taken.add(name)
            units.extend(roots)
        seen.update(fresh)
    return tuple(groups), units


Occurrences = tuple[tuple[int, int], ...]


def _occurrences(table: LaneTable) -> dict[int, Occurrences]:
    """For every root the lanes that it occurs in and how often; roots with equal entries form a group."""
    found: dict[int, list[tuple[int, int]]] = {}
    for index, lane in enumerate(table.lanes):
        roots, counts = np.unique(lane[lane >= 0], return_counts=True)
        for root, count in zip(roots.tolist(), counts.tolist(), strict=True):
            found.setdefault(root, []).append((index, count))
    return {root: tuple(entries) for root, entries in found.items()}


def _name(layer: str, lane: Lane, roots: list[int], taken: set[str], is_part: bool) -> str:
    """The name of the first producer, with the range of its channels if several groups share it."""
    name = layer or "network"
    if is_part or name in taken:
        places = np.flatnonzero(np.isin(lane, roots))
        name = f"{name}[{places[0]}:{places[-1] + 1}]"
    while name in taken:
        name += "'"
    return name


# -- activations ------------------------------------------------------------------------------------------------------


def _activations(table: LaneTable, p: Propagation, model: nn.Module) -> Iterator[Activation]:
    """The memory of every activation, from the step that creates it to the last step that reads it."""
    float_bytes = next((value.element_size() for _, value in named_tensors(model) if value.is_floating_point()), 4)
    made: dict[int, tuple[int, torch.Tensor, Labels]] = {}  # by storage: the step, the first tensor in it, its labels
    last: dict[int, int] = {}
    for step, node in enumerate(p.program.graph.nodes):
        for source in node.all_input_nodes:
            last.update(dict.fromkeys(map(storage_number, _values(source)), step))
        if p.is_activation(node) and node.op != "output":
            labels = p.labels.get(node, [])
            for position, value in enumerate(_values(node)):
                made.setdefault(
                    storage_number(value), (step, value, labels[position] if position < len(labels) else ())
                )
    for storage, (born, value, labelled) in made.items():
        if all(isinstance(size, int) for size in value.shape):  # otherwise its size depends on the data
            yield _activation(table, value, labelled, float_bytes, born, max(born, last.get(storage, born)))


def _values(node: fx.Node) -> list[torch.Tensor]:
    """The tensors that a node stands for."""
    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    return [item for item in values if isinstance(item, torch.Tensor)]


def _activation(
    table: LaneTable, value: torch.Tensor, labels: Labels, float_bytes: int, born: int, dies: int
) -> Activation:
    cut = {varying(label)[0]: core(label) for label in labels if len(varying(label)) == 1}
    fixed = math.prod(int(size) for dim, size in enumerate(value.shape) if dim not in cut)
    lanes = tuple(table.add(ids.reshape(-1).numpy()) for ids in cut.values())
    return Activation(fixed * (float_bytes if value.is_floating_point() else value.element_size()), lanes, born, dies)
