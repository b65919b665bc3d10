"""Variants of inputs that need no labels: mirrored, shifted and blended with each other.

A pruned network soon gives the outputs of the original on a thousand images, but not on others. The original also says
what is right for a mirrored image or for a mixture of two, so a few images give as many as there are steps.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from aacp.data.examples import tensors_in
from aacp.pytorch.internals import pytree

MAX_SHIFT = 1 / 8  # of the height and of the width of an image
IMAGE_DIMENSIONS = 4  # examples, channels, height, width


def varied(inputs: Any) -> Any:
    """A batch of inputs, each mirrored or not, all shifted alike, and each blended with the one before it.

    Tensors that are not images are only blended. Inputs that hold whole numbers, such as indices, or tensors without
    one entry per example, are returned unchanged. Random numbers come from torch's global generator of the CPU.
    """
    tensors = tensors_in(inputs)
    counts = {len(tensor) if tensor.dim() else 0 for tensor in tensors}
    if len(counts) != 1 or not all(tensor.is_floating_point() for tensor in tensors):
        return inputs
    count = counts.pop()
    device = tensors[0].device
    share = torch.rand(count).to(device)  # drawn on the CPU: the same variants on every device
    is_mirrored = (torch.rand(count) < 0.5).to(device)
    shift = (2 * torch.rand(2) - 1) * MAX_SHIFT
    return pytree.tree_map_only(Tensor, lambda tensor: _varied(tensor, share, is_mirrored, shift), inputs)


def _varied(tensor: Tensor, share: Tensor, is_mirrored: Tensor, shift: Tensor) -> Tensor:
    """A variant of one tensor.

    Args:
        tensor: one entry per example.
        share: the share of each example in its blend.
        is_mirrored: whether each example is mirrored.
        shift: how far images are shifted down and to the right, as shares of their height and width.
    """
    one_each = (-1, *[1] * (tensor.dim() - 1))
    if tensor.dim() == IMAGE_DIMENSIONS:
        tensor = torch.where(is_mirrored.reshape(one_each), tensor.flip(-1), tensor)
        pixels = [round(float(part) * size) for part, size in zip(shift, tensor.shape[-2:], strict=True)]
        tensor = torch.roll(tensor, pixels, dims=(-2, -1))
    return torch.lerp(tensor.roll(1, dims=0), tensor, share.reshape(one_each).to(tensor.dtype))
