"""Moments: count, mean and population variance of each channel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import torch

from aacp.errors import InvalidData

AT_ONCE = 1 << 20  # numbers that are squared at once, so that the cache of a processor holds them
MIN_VARIANCE = 0.01  # share of the mean square below which mean square - mean ** 2 has lost too many digits


@dataclass(frozen=True)
class Moments:
    """The number of values per channel, their mean and their population variance."""

    count: int
    mean: torch.Tensor
    variance: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor) -> Moments:
        """The moments of a tensor (n, channels, ...), in double precision."""
        dims = [dim for dim in range(x.dim()) if dim != 1]
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        count = x.numel() // max(1, x.size(1))
        if not wide.is_cuda:  # torch.var_mean is twenty times slower on CPUs
            return cls(count, *_on_cpu(wide, dims, count))
        variance, mean = torch.var_mean(wide, dims, correction=0)
        return cls(count, mean.double(), variance.double())

    def require_spread(self, name: str) -> None:
        """Reject a single value per channel, which has no variance; the name is that of the batch norm."""
        if self.count < 2:
            raise InvalidData(
                f"Batch norm {name or 'of the network'} saw {self.count} value per channel, which has no variance. "
                "Give more calibration images."
            )

    def plus(self, other: Moments) -> Moments:
        """The moments of both sets of values together."""
        total = self.count + other.count
        share = other.count / total
        shift = other.mean - self.mean
        variance = (1 - share) * self.variance + share * other.variance + share * (1 - share) * shift**2
        return Moments(total, self.mean + share * shift, variance)

    @classmethod
    def joined(cls, parts: Iterable[Moments]) -> Moments:
        """The moments of all parts together."""
        return reduce(cls.plus, parts)


def _on_cpu(x: torch.Tensor, dims: list[int], count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance from sums and sums of squares, or in two passes where that would lose digits."""
    sums = _sums(x)
    if sums is not None:
        mean, square = (of_images.double().sum(0) / count for of_images in sums)
        variance = square - mean**2
        if bool((variance > MIN_VARIANCE * square).all()):
            return mean, variance
    centre = x.mean(dims, keepdim=True)
    return centre.double().flatten(), (x - centre).square_().mean(dims).double()


def _sums(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The sums and the sums of squares of each channel of each image; None if neither layout makes them fast."""
    if x.dim() > 2 and x.is_contiguous():
        rows = x.flatten(2)
        return rows.sum(-1), torch.linalg.vector_norm(rows, dim=-1).double().square()
    last = x.movedim(1, -1)
    if x.dim() > 2 and last.is_contiguous():
        rows = last.flatten(1, -2)
        size = max(1, AT_ONCE // rows[0].numel())  # the norm is several times slower in this dimension
        squares = rows.new_empty(size, *rows.shape[1:])
        parts = [torch.mul(part, part, out=squares[: len(part)]).sum(1) for part in torch.split(rows, size)]
        return rows.sum(1), torch.cat(parts)
    return None
