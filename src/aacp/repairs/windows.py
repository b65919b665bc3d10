"""Window: which input position each tap of a convolution reads at each output position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from aacp.graph.program import Call, shape_of


@dataclass(frozen=True)
class Window:
    """The geometry of a convolution or a transposed convolution, with one number for each dimension of space."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]  # in front
    dilation: tuple[int, ...]
    input_size: tuple[int, ...]
    output_size: tuple[int, ...]
    transposed: bool

    @classmethod
    def of(cls, call: Call) -> Window:
        """The window of a call of conv1d, 2d, 3d or their transposed forms."""
        kernel = shape_of(call["weight"])[2:]
        dims = len(kernel)
        dilation = _per_dimension(call["dilation"], dims)
        padding = call["padding"]
        if padding == "same":
            front = tuple(d * (k - 1) // 2 for d, k in zip(dilation, kernel, strict=True))
        else:
            front = _per_dimension(0 if padding == "valid" else padding, dims)
        return cls(
            kernel,
            _per_dimension(call["stride"], dims),
            front,
            dilation,
            shape_of(call["input"])[-dims:],
            call.shape[-dims:],
            call.operator.startswith("conv_transpose"),
        )

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def positions(self) -> int:
        """The number of output positions."""
        return math.prod(self.output_size)

    def reads(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Where each tap reads at the given output positions.

        Args:
            positions: indices into the flattened output positions.

        Returns:
            The flat index of the input position, and whether there is one (otherwise the tap reads zero), both of
            shape (positions, taps).
        """
        index = torch.zeros(len(positions), 1, dtype=torch.int64, device=positions.device)
        inside = torch.ones_like(index, dtype=torch.bool)
        left = positions
        steps = [math.prod(self.output_size[dim + 1 :]) for dim in range(len(self.kernel))]
        for dim, step in enumerate(steps):
            read, there = self._reads_along(dim, left // step)
            left = left % step
            index = (index[:, :, None] * self.input_size[dim] + read[:, None, :]).flatten(1)
            inside = (inside[:, :, None] & there[:, None, :]).flatten(1)
        return index, inside

    def _reads_along(self, dim: int, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The same along one dimension of space: shape (positions, taps of this dimension)."""
        offset = torch.arange(self.kernel[dim], device=position.device) * self.dilation[dim]
        if self.transposed:
            # Output o gets input i through tap k where o = i * stride - padding + k * dilation.
            spread = position[:, None] + self.padding[dim] - offset
            read = torch.div(spread, self.stride[dim], rounding_mode="floor")
            there = spread % self.stride[dim] == 0
        else:
            read = position[:, None] * self.stride[dim] - self.padding[dim] + offset
            there = torch.ones_like(read, dtype=torch.bool)
        there = there & (read >= 0) & (read < self.input_size[dim])
        return read.clamp(0, self.input_size[dim] - 1), there


def _per_dimension(value: int | Sequence[int], dims: int) -> tuple[int, ...]:
    """One number for each dimension, from one number for all or one for each."""
    numbers = [value] if isinstance(value, int) else list(value)
    return tuple(numbers * dims if len(numbers) == 1 else numbers)
