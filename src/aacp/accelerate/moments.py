"""Sums that a convolution computes for the batch norm after it, which then need not read all activations for them.

A norm in training that finds an output of a convolution in its input tells so, and from the next forward pass on the
convolution computes the sums too. All this is kept here and not in the modules, which are copied and pickled.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary


class Sums:
    """Sums per channel of the differences from the running mean of a batch norm, and of their squares.

    Args:
        shift: the running mean.
    """

    def __init__(self, shift: Tensor) -> None:
        self.shift = shift
        self.version = shift._version
        self.partial: Tensor | None = None  # set by the convolution

    def are_for(self, norm: nn.BatchNorm2d) -> bool:
        """Whether the sums are of differences from the running mean that a norm has now."""
        return self.shift is norm.running_mean and self.shift._version == self.version


@dataclass(frozen=True, eq=False)
class _Output:
    """What is known about an output of a convolution."""

    layer: nn.Conv2d
    version: int
    sums: Sums | None


_outputs = WeakTensorKeyDictionary()  # _Output of each output of a convolution
_norms: weakref.WeakKeyDictionary[nn.Conv2d, weakref.ref[nn.BatchNorm2d]] = weakref.WeakKeyDictionary()


def sums_for(layer: nn.Conv2d, x: Tensor) -> Sums | None:
    """Sums that a convolution of these inputs shall compute; None if no norm that is being trained is known to follow.

    The norm may have changed since it was last used.
    """
    known = _norms.get(layer)
    norm = known() if known is not None else None
    if norm is None or not norm.training or not torch.is_grad_enabled():
        return None
    shift = norm.running_mean
    if shift is None or (shift.dtype, shift.shape, shift.device) != (torch.float32, (layer.out_channels,), x.device):
        return None
    return Sums(shift) if shift.is_contiguous() else None


def note_output(layer: nn.Conv2d, y: Tensor, sums: Sums | None) -> None:
    """Remember where an output comes from, as long as it exists, for the norm that may get it."""
    if torch.is_grad_enabled():
        _outputs[y] = _Output(layer, y._version, sums)


def partial_sums_for(norm: nn.BatchNorm2d, x: Tensor) -> Tensor | None:
    """The sums of the inputs of a norm in training, if the convolution before it computed them, and nothing changed."""
    output: _Output | None = _outputs.get(x)  # type: ignore[no-untyped-call]
    if output is None or x._version != output.version:
        return None
    _norms[output.layer] = weakref.ref(norm)
    return output.sums.partial if output.sums is not None and output.sums.are_for(norm) else None
