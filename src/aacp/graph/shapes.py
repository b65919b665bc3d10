"""Shapes: the structure of a cut network, read off the shapes of its tensors."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.errors import GraphMismatch
from aacp.graph.exported import GraphNetwork
from aacp.graph.slicing import size_in
from aacp.pytorch.modules import named_tensors
from aacp.user.values import shown


def tensors_of(network: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters, buffers and tensor attributes, each once, by their names in the original network."""
    named = dict(named_tensors(network))
    if not isinstance(network, GraphNetwork):
        return named
    return {network.names.get(name.removeprefix("body."), name): tensor for name, tensor in named.items()}


def stored_tensors(network: nn.Module) -> set[str]:
    """The names of the tensors in the network's state dict: parameters and persistent buffers."""
    state = {id(value) for value in network.state_dict(keep_vars=True).values()}
    return {name for name, tensor in tensors_of(network).items() if id(tensor) in state}


def expected_shapes(graph: ChannelGraph, structure: Structure) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of a network that was cut to a structure."""
    sizes = graph.lane_sizes(structure)
    shapes: dict[str, tuple[int, ...]] = {}
    for tensor in graph.tensors:
        dims = zip(tensor.shape, tensor.lanes, strict=True)
        shapes[tensor.name] = tuple(int(size if lane is None else sizes[lane]) for size, lane in dims)
    return shapes


def structure_of(network: nn.Module, graph: ChannelGraph) -> Structure:
    """The structure of a network that was cut along a graph."""
    _require_names(network, graph)
    observed = _along_sizes(network, graph) | _along_parameters(network, graph)
    lanes = np.array(list(observed.keys()), dtype=np.int64)
    sizes = np.array(list(observed.values()), dtype=np.int64)
    # The kept size of a lane is linear in the counts: solve for the count of each group beyond its first channel.
    ones = np.ones(len(graph.free), dtype=np.int64)
    open_groups = np.flatnonzero(np.asarray(graph.full) > 1)
    base = graph.lane_sizes(ones)[lanes]
    steps = graph.lane_sizes(ones + np.eye(len(ones), dtype=np.int64)[open_groups])[:, lanes].T - base[:, None]
    more, _, rank, _ = np.linalg.lstsq(steps.astype(float), (sizes - base).astype(float), rcond=None)
    if rank < len(open_groups):
        raise GraphMismatch(
            f"The shapes of this {type(network).__name__} do not say how many channels each of {len(open_groups)} "
            "groups keeps. Pass kept=..., as it was given to shrink."
        )
    counts = ones.copy()
    counts[open_groups] += np.rint(more).astype(np.int64)
    structure = Structure(np.clip(counts, 1, np.asarray(graph.full)).tolist())
    require_fit(network, graph, structure)
    return structure


def require_fit(network: nn.Module, graph: ChannelGraph, structure: Structure) -> None:
    """Reject a network that is not the network of the graph, cut to the structure."""
    _require_names(network, graph)
    found = tensors_of(network)
    expected = expected_shapes(graph, structure)
    for name in sorted(stored_tensors(network) & set(expected)):
        if tuple(found[name].shape) != expected[name]:
            raise GraphMismatch(
                f"{name} has shape {tuple(found[name].shape)} in this network, but the graph, cut to "
                f"{shown(list(structure))}, gives it {expected[name]}. Give a network that was cut along this graph to "
                "this structure."
            )
    lanes = graph.lane_sizes(structure)
    for size in graph.sizes:
        number = size_in(network, size)
        wanted = size.value(int(lanes[size.lane]))
        if number != wanted:
            raise GraphMismatch(
                f"{'.'.join(map(str, (size.module, *size.path)))} is {number} in this network, but the graph, cut to "
                f"{shown(list(structure))}, makes it {wanted}. Give a network that was cut along this graph to "
                "this structure."
            )


def _require_names(network: nn.Module, graph: ChannelGraph) -> None:
    if isinstance(network, GraphNetwork):  # it has no unused tensors, but constants of its own
        return
    parameters = {tensor.name for tensor in graph.tensors if tensor.is_parameter}
    missing = sorted(parameters - set(tensors_of(network)))
    unknown = sorted(stored_tensors(network) - {tensor.name for tensor in graph.tensors})
    if missing or unknown:
        what = f"has no {missing[0]}, but its graph does" if missing else f"has {unknown[0]}, but its graph does not"
        raise GraphMismatch(
            f"This {type(network).__name__} {what}. Give the network as shrink returned it, not a module that "
            "holds it, and the graph it was cut along."
        )


def _along_parameters(network: nn.Module, graph: ChannelGraph) -> dict[int, int]:
    """The size in the network of each lane along which a parameter lies."""
    found = tensors_of(network)
    sizes: dict[int, int] = {}
    for tensor in graph.tensors:
        if tensor.is_parameter and tensor.name in found and found[tensor.name].dim() == len(tensor.shape):
            pairs = zip(tensor.lanes, found[tensor.name].shape, strict=True)
            sizes |= {lane: int(size) for lane, size in pairs if lane is not None}
    return sizes


def _along_sizes(network: nn.Module, graph: ChannelGraph) -> dict[int, int]:
    """The same for lanes on which a number in a module depends: zero-padded shortcuts appear in no parameter."""
    sizes = {}
    for size in graph.sizes:
        kept, rest = divmod(size_in(network, size) * size.over, size.times)
        if not rest and size.times >= size.over:  # otherwise the number was rounded
            sizes[size.lane] = kept
    return sizes
