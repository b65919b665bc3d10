"""The computations that masked execution spends its time in, each as a Triton kernel and in plain torch.

On a GPU with Triton, narrow convolutions, channel statistics and the operators after a batch norm run as one kernel
each. For a convolution of 16 channels cuDNN takes six times as long as a copy does, measured on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import ModuleType

import torch
import torch.nn.functional as F

from aacp.accelerate.kernels.loading import load_kernels

NARROW = 16  # output channels of the convolution kernel in `fused` (twice as fast as cuDNN, measured)


@dataclass(frozen=True)
class Convolution:
    """A convolution that has not been computed yet."""

    x: torch.Tensor
    weight: torch.Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def run(self) -> torch.Tensor:
        return F.conv2d(self.x, self.weight, None, self.stride, self.padding, self.dilation, self.groups)

    @property
    def narrow(self) -> Convolution | None:
        """The same convolution as the kernel in `fused` takes it: 3x3, 16 channels, inputs padded to 16; or None."""
        out, inner, *kernel = self.weight.shape
        plain = self.groups == 1 and all(value == (1, 1) for value in (self.stride, self.padding, self.dilation))
        fits = (out, kernel) == (NARROW, [3, 3]) and inner <= NARROW and self.x.shape[-1] % 2 == 0
        if not (plain and fits and _fused(self.x) is not None):
            return None
        missing = [0, 0, 0, 0, 0, NARROW - inner]
        return replace(self, x=F.pad(self.x, missing), weight=F.pad(self.weight, missing)) if missing[-1] else self


@dataclass(frozen=True)
class Pending:
    """An activation that has not been computed yet: scale x source + shift + residual, clipped to [0, top]."""

    source: torch.Tensor | Convolution
    scale: torch.Tensor
    shift: torch.Tensor
    residual: torch.Tensor | None = None
    top: float | None = None

    def plus(self, residual: torch.Tensor) -> Pending:
        return replace(self, residual=residual)

    def clipped(self, top: float) -> Pending:
        return replace(self, top=top)

    def computed(self) -> torch.Tensor:
        """The activation."""
        source = self.source
        if isinstance(source, Convolution):
            fused = _fused(source.x, self.residual)
            if fused is not None and (narrow := source.narrow) is not None:
                given = (self.scale, self.shift, self.residual, self.top)
                activated: torch.Tensor = fused.convolve(narrow.x, narrow.weight, *given)
                return activated
            source = source.run()
        fused = _fused(source, self.residual)
        if fused is not None:
            result: torch.Tensor = fused.activate(source, self.scale, self.shift, self.residual, self.top)
            return result
        return self._plainly(source)

    def _plainly(self, source: torch.Tensor) -> torch.Tensor:
        shape = [1, -1, *[1] * (source.dim() - 2)]
        value = source * self.scale.reshape(shape) + self.shift.reshape(shape)
        value = value if self.residual is None else value + self.residual
        value = value if self.top is None else value.clamp(0.0, self.top)
        return value.to(source.dtype)


def moments(source: torch.Tensor | Convolution) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A tensor (or the result of a convolution), and mean and population variance of its channels."""
    if isinstance(source, Convolution):
        fused = _fused(source.x)
        if fused is not None and (narrow := source.narrow) is not None:
            value, mean, variance = fused.convolve_with_moments(narrow.x, narrow.weight)
            return value, mean, variance
        source = source.run()
    fused = _fused(source)
    if fused is not None:
        mean, variance = fused.moments(source)
        return source, mean, variance
    # Sums in at least single precision.
    wide = source.float() if source.dtype in (torch.bfloat16, torch.float16) else source
    variance, mean = torch.var_mean(wide, [dim for dim in range(source.dim()) if dim != 1], correction=0)
    return source, mean, variance


def _fused(source: torch.Tensor, residual: torch.Tensor | None = None) -> ModuleType | None:
    """The Triton kernels, if they can take these tensors: bfloat16 on a GPU, channels last."""
    tensors = [source] if residual is None else [source, residual]
    fits = all(
        t.is_cuda and t.dtype == torch.bfloat16 and t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)
        for t in tensors
    )
    return load_kernels("aacp.accelerate.kernels.fused", "Masked execution") if fits else None
