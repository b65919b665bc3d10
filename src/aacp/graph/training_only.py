"""Parts of a network that run only in training, such as auxiliary heads: they lose the channels that they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from aacp.channels.elements import Tensor
from aacp.channels.graph import ChannelGraph
from aacp.channels.lanes import Lane
from aacp.errors import UntraceableModel
from aacp.graph.examples import with_batch
from aacp.graph.labels import ids_of, varying
from aacp.graph.program import Program, to_program
from aacp.graph.propagation import OUTPUT, Propagation
from aacp.graph.units import units_of_ids
from aacp.graph.unverified import evaluation_copy, propagate
from aacp.pytorch.modules import named_tensors

BATCH = 2  # batch norms in training need more than one example


def unused_parameters(program: Program, model: nn.Module) -> list[str]:
    """The names of the parameters that a program does not read."""
    used = {program.tensors.get(node.name) for node in program.graph.nodes if node.users}
    tensors = named_tensors(model)
    return [name for name, value in tensors if isinstance(value, nn.Parameter) and name not in used]


def with_training_parts(
    graph: ChannelGraph, model: nn.Module, arguments: Sequence[Any], unused: Sequence[str]
) -> ChannelGraph:
    """The graph with the channels that parameters read in training mode alone.

    Args:
        graph: the graph of the network in evaluation mode.
        model: the network; it is not changed.
        arguments: what to call it with.
        unused: the names of the parameters that evaluation mode does not use.
    """
    if not unused:
        return graph
    try:
        twin = evaluation_copy(model).train()
        propagation, _ = propagate(to_program(twin, with_batch(tuple(arguments), BATCH)), graph=graph)
    except UntraceableModel:
        return _noted(graph, unused)
    units = units_of_ids(propagation, graph)
    graph = graph.freeze(_stopped_in_training(propagation, graph))
    lanes = list(graph.lanes)
    tensors = [
        _followed(tensor, propagation, units, lanes) if tensor.name in unused else tensor for tensor in graph.tensors
    ]
    graph = replace(graph, lanes=tuple(lanes), tensors=tuple(tensors))
    return _noted(graph, [name for name in unused if name not in propagation.weights])


def _noted(graph: ChannelGraph, unused: Sequence[str]) -> ChannelGraph:
    """The graph with a note about parameters of which nothing is known."""
    if not unused:
        return graph
    shown = ", ".join(unused[:3]) + (f" and {len(unused) - 3} more" if len(unused) > 3 else "")
    note = f"not used in evaluation mode and not pruned: {shown}; freeze the channels that they read"
    return replace(graph, notes=(*graph.notes, note))


def _stopped_in_training(p: Propagation, graph: ChannelGraph) -> dict[str, str]:
    """The groups that training mode ties to others or returns, each with a reason."""
    roots = p.ties.roots()
    fixed = p.ties.reasons()
    first: dict[int, int] = {}  # by root: the first unit that has it
    reasons: dict[int, str] = {}
    for number, unit in _pairs(p, graph):
        if first.setdefault(int(roots[number]), unit) != unit:
            reasons |= dict.fromkeys((unit, first[int(roots[number])]), "tied to others in training mode")
        elif fixed.get(int(roots[number])) == OUTPUT:
            reasons[unit] = f"{OUTPUT} in training mode"
    return {graph.groups[graph.unit_groups[unit]].name: reason for unit, reason in reasons.items()}


def _pairs(p: Propagation, graph: ChannelGraph) -> Iterator[tuple[int, int]]:
    """The channel ids of all weights in training mode, each with the unit that it has in the graph."""
    for tensor in graph.tensors:
        for label in p.weights.get(tensor.name, ()):
            (dim,) = varying(label)
            lane = tensor.lanes[dim]
            if lane is not None:
                pairs = zip(ids_of(label).tolist(), graph.lanes[lane].tolist(), strict=True)
                yield from ((number, unit) for number, unit in pairs if unit >= 0)


def _followed(tensor: Tensor, p: Propagation, units: NDArray[np.int64], lanes: list[Lane]) -> Tensor:
    """A tensor that only training uses, with the lanes of the channels that it reads; new lanes are appended."""
    known = list(tensor.lanes)
    for label in p.weights.get(tensor.name, ()):
        (dim,) = varying(label)
        lane = units[ids_of(label)]
        if (lane >= 0).any():
            same = [number for number, other in enumerate(lanes) if np.array_equal(other, lane)]
            known[dim] = same[0] if same else len(lanes)
            if not same:
                lanes.append(lane)
    return replace(tensor, lanes=tuple(known))
