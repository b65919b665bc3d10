"""Growing: the opposite of a cut: a wider copy of a network whose new channels are zero and change nothing.

New units of a group stand behind its last one, wherever that occurs. All that belongs to them is zero: what they
compute, what is computed from them, and the gradients of both. A network that notices them nevertheless, by taking a
mean or a softmax over its channels, say, is found by `aacp.accelerate.equivalence`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels import ChannelAxis, ChannelGraph
from aacp.errors import GraphMismatch, InvalidStructure
from aacp.graph.slicing import set_sizes
from aacp.modules import copy_module, named_tensors


class Growth:
    """Where every element of a network's tensors lies in the same tensors of a wider network.

    `widths` holds the new width of each free group, in the order of `graph.free`.
    """

    def __init__(self, model: nn.Module, graph: ChannelGraph, widths: Sequence[int]) -> None:
        self.graph, self.widths = graph, tuple(widths)
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
        """A wider copy of the model, of the same class; the model itself is not touched."""
        wider = copy_module(model, {id(value): self._grown(name, value) for name, value in named_tensors(model)})
        set_sizes(wider, self.graph, self._lengths)
        return wider

    def _grown(self, name: str, value: torch.Tensor) -> torch.Tensor:
        result = self.widened(name, value.detach())
        return nn.Parameter(result, value.requires_grad) if isinstance(value, nn.Parameter) else result

    def widened(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the network, or one of its shape, as the wider network has it: a copy."""
        value = value.clone()
        for dim, places, length in self._places[name]:
            shape = [*value.shape[:dim], length, *value.shape[dim + 1 :]]
            # A variance of one, as of a norm that has seen nothing yet.
            wider = value.new_full(shape, 1 if name.endswith("running_var") else 0)
            value = wider.index_copy(dim, places.to(value.device), value)
        return value

    def narrowed(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """What `widened` was given, out of what it gave."""
        for dim, places, _ in self._places[name]:
            value = value.index_select(dim, places.to(value.device))
        return value

    @torch.no_grad()
    def write_back(self, wider: nn.Module, model: nn.Module) -> None:
        """Give the model, in place, what the wider network now has in its channels."""
        held = dict(named_tensors(wider))
        for name, value in named_tensors(model):
            value.copy_(self.narrowed(name, held[name].detach()))


def grow(model: nn.Module, graph: ChannelGraph, widths: Sequence[int]) -> nn.Module:
    """A copy of the model whose free groups have these widths; everything that is new in it is zero."""
    return Growth(model, graph, widths).grown(model)


def rounded_widths(graph: ChannelGraph, multiple: int) -> tuple[int, ...]:
    """The smallest widths of the free groups under which as many layers as can be see multiples of a number.

    Where several groups lie side by side (a stream that a padded shortcut widened), one of them takes what is missing.
    """
    counts, offset = graph.lane_size_map
    widths = np.asarray(graph.full, dtype=np.int64)
    is_settled = np.zeros(len(widths), dtype=bool)
    read = {lane for layer in graph.layers for lane in (layer.output, layer.input) if lane is not None}
    for lane in sorted(read, key=lambda lane: (np.count_nonzero(counts[lane]), lane)):
        size = int(counts[lane] @ widths + offset[lane])
        able = [group for group in np.flatnonzero(counts[lane]) if not is_settled[group]]
        choices = [(counts[lane, group] * more, group, more) for group in able for more in range(multiple)]
        choices = [choice for choice in choices if (size + choice[0]) % multiple == 0]
        if choices:
            _, group, more = min(choices)
            widths[group] += more
        is_settled[able] = True
    return tuple(int(width) for width in widths)


def _new_units(graph: ChannelGraph, widths: Sequence[int]) -> NDArray[np.int64]:
    """For every unit how many new ones stand behind it: some behind the last of a group that grows."""
    if len(widths) != len(graph.free) or any(new < old for new, old in zip(widths, graph.full, strict=False)):
        raise InvalidStructure(
            f"Widths grow from {tuple(graph.full)}, but {tuple(widths)} was asked for. Give one for each free group."
        )
    asked = {group.name: width - group.width for group, width in zip(graph.free, widths, strict=True)}
    more = np.zeros(len(graph.unit_groups), dtype=np.int64)
    end = 0
    for group in graph.groups:
        end += group.width
        more[end - 1] = asked.get(group.name, 0)
    return more


def _placed(lane: ChannelAxis, graph: ChannelGraph, more: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The new index of every old one, and the new length.

    A unit that occurs several times in a row (a flattened picture) is a run, and new ones follow it as runs as long.
    """
    inserted = np.where(lane >= 0, np.append(more, 0)[lane], 0)
    begins = np.append(True, lane[1:] != lane[:-1])[: len(lane)]
    before_each = np.cumsum(inserted) - inserted
    shift = before_each[begins][np.cumsum(begins) - 1]
    return np.arange(len(lane)) + shift, len(lane) + int(inserted.sum())


def _all_names(model: nn.Module) -> list[tuple[str, str, torch.Tensor]]:
    """Every name that a tensor goes by, its first name, and itself."""
    named = list(named_tensors(model))
    first = {id(value): name for name, value in named}
    held = model.state_dict(keep_vars=True)
    others = [(name, first[id(value)], value) for name, value in held.items() if id(value) in first]
    return [*((name, name, value) for name, value in named), *others]
