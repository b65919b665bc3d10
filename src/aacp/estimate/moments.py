"""Moments: count, mean and population variance of each channel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch

from aacp.errors import InvalidData


@dataclass(frozen=True)
class Moments:
    """What a batch norm needs to know of all it has seen; mean and variance in double precision where added up."""

    count: int
    mean: torch.Tensor
    variance: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor) -> Moments:
        """Those of a tensor (n, channels, ...)."""
        dims = [dim for dim in range(x.dim()) if dim != 1]
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        if wide.is_cuda:
            variance, mean = torch.var_mean(wide, dims, correction=0)
        else:  # the same in two steps: torch's own is eight times slower on CPUs
            mean = wide.mean(dims, keepdim=True)
            variance = (wide - mean).square_().mean(dims)
        return cls(x.numel() // max(1, x.size(1)), mean.double().flatten(), variance.double())

    def require_spread(self, name: str) -> None:
        """Refuse what a batch norm of this name saw if it is a single value, which has no variance."""
        if self.count < 2:
            raise InvalidData(
                f"Batch norm {name or 'of the network'} saw {self.count} value per channel, which has no variance. "
                "Give more calibration images."
            )

    def plus(self, other: Moments) -> Moments:
        """Those of both together."""
        total = self.count + other.count
        share, shift = other.count / total, other.mean - self.mean
        variance = (1 - share) * self.variance + share * other.variance + share * (1 - share) * shift**2
        return Moments(total, self.mean + share * shift, variance)

    @classmethod
    def joined(cls, parts: Iterable[Moments]) -> Moments:
        """Those of all parts together."""
        return reduce(cls.plus, parts)
