"""MaskedWeights: the weights of all layers in one buffer, zero where a channel that they produce or read is absent."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels.elements import Tensor
from aacp.channels.graph import ChannelGraph
from aacp.pytorch.modules import device_of_model, named_tensors


class MaskedWeights:
    """The weights of convolutions and linear layers, masked to one structure after another by two multiplications."""

    def __init__(self, model: nn.Module, graph: ChannelGraph, dtype: torch.dtype | None = None) -> None:
        self.model = model
        self.known = {name: value.detach() for name, value in named_tensors(model)}
        records = _weights_of_layers(graph)
        device = device_of_model(model)
        # Whether each unit is kept. The last entry stands for everything that is never removed.
        self.present = torch.ones(len(graph.unit_groups) + 1, dtype=torch.bool, device=device)
        flat = [_channels_last(self.known[record.name]).reshape(-1) for record in records]
        self._full = torch.cat(flat).to(dtype or flat[0].dtype)
        self._masked = self._full.clone()
        self._units = [
            torch.cat([_units_of_elements(graph, record, dim) for record in records]).to(device) for dim in range(2)
        ]
        sizes = [len(part) for part in flat]
        self.tensors = _named_parts(self._masked, sizes, records)
        self._full_tensors = _named_parts(self._full, sizes, records)

    def read(self) -> None:
        """Take the full values from the model again, whose weights have changed in place."""
        for name, part in self._full_tensors.items():
            part.copy_(self.known[name])

    def choose(self, units: NDArray[np.bool_]) -> None:
        """Set which units are present; the weights stay as they are."""
        self.present[:-1] = torch.from_numpy(units).to(self.present.device)

    def keep(self, units: NDArray[np.bool_]) -> None:
        """Set every weight to zero that a removed unit takes part in, and all others to their full values."""
        self.choose(units)
        present = self.present.to(self._full.dtype)
        torch.mul(self._full, present.index_select(0, self._units[0]), out=self._masked)
        self._masked.mul_(present.index_select(0, self._units[1]))


def _named_parts(buffer: torch.Tensor, sizes: list[int], records: list[Tensor]) -> dict[str, torch.Tensor]:
    """The parts of a buffer as weights in their shapes, by name."""
    parts = torch.split(buffer, sizes)
    return {record.name: _shaped(part, record.shape) for record, part in zip(records, parts, strict=True)}


def _weights_of_layers(graph: ChannelGraph) -> list[Tensor]:
    """The weights of convolutions and linear layers, each once, if their channels lie in the first two dimensions."""
    names = {f"{layer.name}.weight".removeprefix(".") for layer in graph.layers}
    return [
        tensor
        for tensor in graph.tensors
        if tensor.name in names and len(tensor.shape) > 1 and all(lane is None for lane in tensor.lanes[2:])
    ]


def _units_of_elements(graph: ChannelGraph, tensor: Tensor, dim: int) -> torch.Tensor:
    """The unit that each element's index along `dim` belongs to; the number of units where there is none."""
    lane = tensor.lanes[dim]
    always = len(graph.unit_groups)
    units = np.full(tensor.shape[dim], -1) if lane is None else graph.lanes[lane]
    shape = [-1 if position == dim else 1 for position in range(len(tensor.shape))]
    indices = torch.from_numpy(np.where(units < 0, always, units).astype(np.int32))
    return _channels_last(indices.reshape(shape).expand(tensor.shape)).reshape(-1)


def _channels_last(weight: torch.Tensor) -> torch.Tensor:
    """A weight in the order in which convolutions of channels-last images read it."""
    return weight.movedim(1, -1)


def _shaped(part: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A flat part of the buffer in the shape of its weight; the inverse of `_channels_last`."""
    return part.reshape(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
