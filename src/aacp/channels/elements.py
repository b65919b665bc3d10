"""The elements of a channel graph: its groups of channels, layers, tensors, sizes and activations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from aacp.disk.records import Count, Integer, Whole, WrongValue, of_length
from aacp.errors import InvalidStructure
from aacp.user.values import shown

MAX_DIMS = 64  # of a tensor
Sizes = Annotated[tuple[Whole, ...], of_length(0, MAX_DIMS)]


@dataclass(frozen=True)
class Member:
    """One dimension of a tensor that holds channels of a group."""

    tensor: str
    dim: int

    def __str__(self) -> str:
        return f"{self.tensor}[{self.dim}]"

    @classmethod
    def parse(cls, text: str) -> Member:
        """The inverse of `str`: "conv1.weight[0]"."""
        tensor, _, dim = text.removesuffix("]").rpartition("[")
        if not dim.isdecimal() or len(dim) > 3:
            raise WrongValue(f"{shown(text)} is not a dimension of a tensor")
        return cls(tensor, int(dim))

    @property
    def module(self) -> str:
        """The path of the module that the tensor belongs to."""
        return self.tensor.rpartition(".")[0]


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that several layers keep or remove together."""

    name: str
    width: Count  # in units
    unit_channels: Count  # channels per unit in the layer that the group is named after
    members: tuple[Member, ...]  # every tensor dimension that holds channels of the group
    frozen: str | None = None  # why no channel of the group may be removed; None if they may

    def kept_units(self, choice: Any) -> NDArray[np.bool_]:
        """A mask over the units of the group: the first `choice` stay, or those listed, or those marked True."""
        mask = np.zeros(self.width, dtype=bool)
        given = values = _as_array(choice)
        if values.ndim == 0 and np.issubdtype(values.dtype, np.integer):
            values = np.arange(min(int(values), self.width + 1))  # one too many is enough to be rejected
        elif values.ndim == 1 and values.dtype == bool:
            if values.shape != (self.width,):
                raise InvalidStructure(
                    f"Group {self.name!r} has {self.width} units, but its mask has shape {values.shape}. "
                    "Give one truth value per unit."
                )
            values = np.flatnonzero(values)
        are_indices = values.ndim == 1 and len(values) > 0 and np.issubdtype(values.dtype, np.integer)
        if not are_indices or len(np.unique(values)) != len(values) or values.min() < 0 or values.max() >= self.width:
            raise InvalidStructure(
                f"Group {self.name!r} keeps between 1 and {self.width} different units, but got "
                f"{shown(given.tolist())}. Give a count, or different indices from 0 on."
            )
        mask[values] = True
        return mask


def _as_array(choice: Any) -> NDArray[Any]:
    """A choice as an array; lists of several lengths, which no array can hold, as an array of objects."""
    try:
        return np.asarray(choice)
    except ValueError:
        return np.asarray(choice, dtype=object)


@dataclass(frozen=True)
class Layer:
    """One multiplication of activations: a convolution, a linear layer or a matrix product.

    It costs `macs_per_channel` times the number of kept indices of each lane in `macs_lanes`.
    """

    name: str
    kind: str
    kernel: Sizes
    output_size: Sizes
    input: Whole | None  # lane of the input channels
    output: Whole | None  # lane of the output channels
    macs_per_channel: Whole
    macs_lanes: Sizes

    @property
    def is_convolution(self) -> bool:
        return self.kind.startswith("conv")


@dataclass(frozen=True)
class Tensor:
    """A parameter or buffer, and the lane of each of its dimensions (None: the size never changes)."""

    name: str
    shape: Sizes
    lanes: Annotated[tuple[Whole | None, ...], of_length(0, MAX_DIMS)]
    is_parameter: bool
    element_bytes: Count = 4


@dataclass(frozen=True)
class HardCodedSize:
    """A number inside a module that depends on the size of a lane: `times` x kept indices / `over`.

    `path` leads from the module to the number: an attribute name, then keys or indices, or a closure variable.
    """

    module: str
    path: Annotated[tuple[str | Integer, ...], of_length(1, MAX_DIMS)]
    lane: Whole
    times: Count = 1
    over: Count = 1

    def value(self, length: int) -> int:
        """The number if so many indices of the lane are kept."""
        return length * self.times // self.over


@dataclass(frozen=True)
class Activation:
    """A tensor that the network computes: its size in memory, and the steps during which it is needed.

    It takes `bytes_per_channel` times the number of kept indices of each lane, from step `born` to step `dies`.
    """

    bytes_per_channel: Whole
    lanes: Sizes
    born: Whole
    dies: Whole
