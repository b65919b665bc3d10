"""Growing, the opposite of pruning: a wider copy of a network whose new channels are zero and change nothing.

New units of a group are inserted after its last unit, wherever that occurs. All their weights are zero, and therefore
their outputs and gradients. Some networks nevertheless react to new channels, for example with a mean or a softmax over
channels; `aacp.accelerate.equivalence` detects them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.lanes import Lane
from aacp.errors import GraphMismatch, InvalidStructure
from aacp.graph.slicing import set_sizes
from aacp.pytorch.modules import copy_module, named_tensors


class Growth:
    """Where every element of a network's tensors lies in the same tensors of a wider network.

    Args:
        model: the network.
        graph: its channel graph.
        widths: the new width of each free group, in the order of `graph.free`.
    """

    def __init__(self, model: nn.Module, graph: ChannelGraph, widths: Sequence[int]) -> None:
        self.graph = graph
        self.widths = tuple(widths)
        more = _new_units(graph, self.widths)
        placed = [_placed(lane, graph, more) for lane in graph.lanes]
        self._lengths = [length for _, length in placed]
        self._places: dict[str, list[tuple[int, torch.Tensor, int]]] = {}
        known = {tensor.name: tensor for tensor in graph.tensors}
        for name, first, value in _all_names(model):
            if first not in known or known[first].shape != tuple(value.shape):
                raise GraphMismatch(f"{first} is not in the graph with shape {tuple(value.shape)}. Trace it again.")
            lanes = [(dim, lane) for dim, lane in enumerate(known[first].lanes) if lane is not None]
            moved = [(dim, *placed[lane]) for dim, lane in lanes if placed[lane][1] > len(graph.lanes[lane])]
            self._places[name] = [(dim, torch.from_numpy(places), length) for dim, places, length in moved]

    def grown(self, model: nn.Module) -> nn.Module:
        """A wider copy of the model, of the same class; the model itself does not change."""
        wider = copy_module(model, {id(value): self._grown(name, value) for name, value in named_tensors(model)})
        set_sizes(wider, self.graph, self._lengths)
        return wider

    def _grown(self, name: str, value: torch.Tensor) -> torch.Tensor:
        result = self.widened(name, value.detach())
        return nn.Parameter(result, value.requires_grad) if isinstance(value, nn.Parameter) else result

    def widened(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """A copy of a tensor with the shape of one of the network's, in the shape of the wider network."""
        value = value.clone()
        for dim, places, length in self._places[name]:
            shape = _with_length(value.shape, dim, length)
            # A running variance of one, as in a new batch norm.
            wider = value.new_full(shape, 1 if name.endswith("running_var") else 0)
            value = wider.index_copy(dim, places.to(value.device), value)
        return value

    def narrowed(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """The inverse of `widened`."""
        for dim, places, _ in self._places[name]:
            value = value.index_select(dim, places.to(value.device))
        return value

    @torch.no_grad()
    def write_back(self, wider: nn.Module, model: nn.Module) -> None:
        """Copy the weights and statistics of the wider network to the model, in place.

        Other tensor attributes are copied if their shapes fit: a network may keep the outputs of its last batch in one.
        """
        held = dict(named_tensors(wider))
        for name, value in named_tensors(model):
            trained = held.get(name)
            if trained is not None and trained.shape == self._wider_shape(name, value.shape):
                value.copy_(self.narrowed(name, trained.detach()))

    def _wider_shape(self, name: str, shape: torch.Size) -> torch.Size:
        """The shape that a tensor of this shape has in the wider network."""
        for dim, _, length in self._places[name]:
            shape = _with_length(shape, dim, length)
        return shape


def _with_length(shape: torch.Size, dim: int, length: int) -> torch.Size:
    return torch.Size([*shape[:dim], length, *shape[dim + 1 :]])


def grow(model: nn.Module, graph: ChannelGraph, widths: Sequence[int]) -> nn.Module:
    """A copy of the model whose free groups have these widths; all new weights are zero."""
    return Growth(model, graph, widths).grown(model)


def rounded_widths(graph: ChannelGraph, multiple: int) -> tuple[int, ...]:
    """The smallest widths of the free groups with which as many layers as possible have multiples of a number.

    Where a layer's channels belong to several groups (as after a padded shortcut), one of them is widened for all.
    """
    counts, offset = graph.lane_size_map
    widths = np.asarray(graph.full, dtype=np.int64)
    is_decided = np.zeros(len(widths), dtype=bool)
    read = {lane for layer in graph.layers for lane in (layer.output, layer.input) if lane is not None}
    for lane in sorted(read, key=lambda lane: (np.count_nonzero(counts[lane]), lane)):
        size = int(counts[lane] @ widths + offset[lane])
        open_groups = [group for group in np.flatnonzero(counts[lane]) if not is_decided[group]]
        choices = [(counts[lane, group] * more, group, more) for group in open_groups for more in range(multiple)]
        choices = [choice for choice in choices if (size + choice[0]) % multiple == 0]
        if choices:
            _, group, more = min(choices)
            widths[group] += more
        is_decided[open_groups] = True
    return tuple(int(width) for width in widths)


def _new_units(graph: ChannelGraph, widths: Sequence[int]) -> NDArray[np.int64]:
    """How many new units are inserted after each unit; only the last unit of a group has any."""
    if len(widths) != len(graph.free) or any(new < old for new, old in zip(widths, graph.full, strict=False)):
        raise InvalidStructure(
            f"Widths can only grow from {tuple(graph.full)}, but {tuple(widths)} was requested. "
            "Give a width for each free group."
        )
    requested = {group.name: width - group.width for group, width in zip(graph.free, widths, strict=True)}
    more = np.zeros(len(graph.unit_groups), dtype=np.int64)
    end = 0
    for group in graph.groups:
        end += group.width
        more[end - 1] = requested.get(group.name, 0)
    return more


def _placed(lane: Lane, graph: ChannelGraph, more: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The new index of every old index, and the new length.

    A unit may occur several times in a row, as in a flattened image; each new unit then occurs as often.
    """
    inserted = np.where(lane >= 0, np.append(more, 0)[lane], 0)
    begins = np.append(True, lane[1:] != lane[:-1])[: len(lane)]
    before_each = np.cumsum(inserted) - inserted
    shift = before_each[begins][np.cumsum(begins) - 1]
    return np.arange(len(lane)) + shift, len(lane) + int(inserted.sum())


def _all_names(model: nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    """Every name of every tensor, with the first name of that tensor, and the tensor."""
    named = list(named_tensors(model))
    first = {id(value): name for name, value in named}
    held = model.state_dict(keep_vars=True)
    others = [(name, first[id(value)], value) for name, value in held.items() if id(value) in first]
    return [*((name, name, value) for name, value in named), *others]
