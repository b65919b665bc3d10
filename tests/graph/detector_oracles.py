"""Independent checks of detectors: the masked original, and operators where torchvision's do not match torch's."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import numpy as np
import torch
import torch._dynamo
from torch import Tensor, nn

import aacp


@contextmanager
def plain_operators() -> Iterator[bool]:
    """A plain `nms`, and `roi_align` that is not compiled, where the build of torchvision does not match torch's.

    Yields whether they were needed.
    """
    if has_own_operators():
        yield False
        return
    library = torch.library.Library("torchvision", "IMPL")
    library.impl("nms", plain_nms, "CPU")
    without_check = mock.patch("torchvision.ops.boxes._assert_has_ops", return_value=None)
    with without_check, torch._dynamo.config.patch(disable=True):
        yield True


def has_own_operators() -> bool:
    """Whether the compiled operators of torchvision run."""
    try:
        torch.ops.torchvision.nms(torch.zeros(0, 4), torch.zeros(0), 0.5)
    except NotImplementedError:
        return False
    return True


def plain_nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    left = scores.argsort(descending=True, stable=True)
    kept = []
    while left.numel():
        best = left[0]
        kept.append(best)
        low = torch.maximum(boxes[left, :2], boxes[best, :2])
        high = torch.minimum(boxes[left, 2:], boxes[best, 2:])
        common = (high - low).clamp(min=0).prod(1)
        overlap = common / (areas[left] + areas[best] - common)
        left = left[(overlap <= threshold) & (left != best)]
    return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.long)


class PresentGroupNorm(nn.Module):
    """A group norm whose statistics leave out the channels with weight 0."""

    def __init__(self, norm: nn.GroupNorm) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        present = (norm.weight != 0).view(norm.num_groups, -1, 1)
        grouped = x.reshape(len(x), norm.num_groups, -1, x.shape[2] * x.shape[3])
        count = present.sum((1, 2)) * grouped.shape[3]
        mean = (grouped * present).sum((2, 3)) / count
        centred = grouped - mean[..., None, None]
        variance = (centred.square() * present).sum((2, 3)) / count
        normed = centred / (variance[..., None, None] + norm.eps).sqrt()
        return normed.reshape(x.shape) * norm.weight[:, None, None] + norm.bias[:, None, None]


def masked(model: nn.Module, graph: aacp.ChannelGraph, counts: list[int]) -> nn.Module:
    """The original with zeros in place of removed channels: all activations here are 0 for 0."""
    twin = copy.deepcopy(model)
    values = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
    stays = graph.kept_units(counts)
    for tensor in graph.tensors:
        for dim, lane in enumerate(tensor.lanes):
            if lane is not None:
                units = graph.lanes[lane]
                gone = np.flatnonzero((units >= 0) & ~stays[np.maximum(units, 0)])
                values[tensor.name].data.index_fill_(dim, torch.from_numpy(gone), 0)
    for module in list(twin.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.GroupNorm):
                setattr(module, name, PresentGroupNorm(child))
    return twin
