"""Comparison: how far the outputs of two networks are apart, at their own scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from aacp.pytorch.internals import pytree

# Lower bound of the scale that differences are divided by, as a share of the value: it keeps nearly constant outputs
# from being judged by their rounding errors. Times the tolerance in double precision it is far above rounding.
RELATIVE_FLOOR = 1e-3
# Share of the elements that is left out of the variation: fill values such as -1e9, boxes beside probabilities.
OUTLIER_SHARE = 0.25


def compare(expected: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> float | str:
    """The largest difference relative to how much its tensor varies, or a description of what else is wrong.

    Elements that are equal, infinite ones too, are left out when the variation is measured.
    """
    if [tensor.shape for tensor in expected] != [tensor.shape for tensor in found]:
        return f"output shapes {[tuple(t.shape) for t in found]} instead of {[tuple(t.shape) for t in expected]}"
    largest = 0.0
    for one, other in zip(map(_as_floats, expected), map(_as_floats, found), strict=True):
        apart = one != other
        if apart.any():
            values = one[apart]
            error = (values - other[apart]).abs()
            # A few elements vary little among themselves, so they are judged by how much all elements vary. The largest
            # of the few limits that, because fill values such as -1e9 would hide a difference.
            spread = max(_variation(values), min(_variation(one[one.isfinite()]), values.abs().max().item()))
            scale = (RELATIVE_FLOOR * values.abs()).clamp(min=max(spread, 1e-300))
            worst = (error / scale).max().item()
            largest = max(largest, worst if math.isfinite(worst) else math.inf)
    return largest


def rounded(arguments: tuple[Any, ...], generator: torch.Generator) -> tuple[Any, ...]:
    """Arguments with a rounding error in every element of their floating-point tensors."""

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        errors = torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype).to(leaf.device)
        return leaf * (1 + torch.finfo(leaf.dtype).eps * errors)

    result: tuple[Any, ...] = pytree.tree_map(change, arguments)
    return result


def _variation(values: torch.Tensor) -> float:
    """How far values lie from their median, without the outliers among them."""
    far = (values - values.median()).abs()
    far = far[far > 0]
    return far.kthvalue(math.ceil((1 - OUTLIER_SHARE) * len(far))).values.item() if len(far) else 0.0


def _as_floats(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor if tensor.is_floating_point() else tensor.double()
