"""Moments: count, mean and population variance of each channel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch

from aacp.errors import InvalidData

CANCELS = 0.01  # of the mean square: a variance below it has lost digits to the subtraction


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
        count = x.numel() // max(1, x.size(1))
        if not wide.is_cuda:  # torch's own is twenty times slower on CPUs
            return cls(count, *_on_cpu(wide, dims, count))
        variance, mean = torch.var_mean(wide, dims, correction=0)
        return cls(count, mean.double(), variance.double())

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


def _on_cpu(x: torch.Tensor, dims: list[int], count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance from sums and sums of squares; in two passes where these would cancel each other."""
    if x.dim() > 2 and x.is_contiguous():
        rows = x.flatten(2)
        mean = rows.sum(-1).double().sum(0) / count
        square = torch.linalg.vector_norm(rows, dim=-1).double().square().sum(0) / count
        variance = square - mean**2
        if bool((variance > CANCELS * square).all()):
            return mean, variance
    centre = x.mean(dims, keepdim=True)
    return centre.double().flatten(), (x - centre).square_().mean(dims).double()
