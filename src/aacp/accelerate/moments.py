"""Sums that a convolution computes for the batch norm after it, so that the norm need not read all activations.

If the input of a norm in training is the output of a convolution, the norm is recorded here. From the next forward pass
on, the convolution computes the sums too. Modules do not hold these records, because modules are copied and pickled.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from aacp.pytorch.internals import change_count


class Sums:
    """Sums per channel of the differences from the running mean of a batch norm, and of their squares.

    Args:
        shift: the running mean.
    """

    def __init__(self, shift: Tensor) -> None:
        self.shift = shift
        self.changes = change_count(shift)
        self.partial: Tensor | None = None  # set by the convolution

    def are_for(self, norm: nn.BatchNorm2d) -> bool:
        """Whether the sums are of differences from the running mean that a norm has now."""
        return self.shift is norm.running_mean and change_count(self.shift) == self.changes


@dataclass(frozen=True, eq=False)
class _Output:
    """The origin of an output of a convolution."""

    layer: nn.Conv2d
    changes: int  # in place, when it was computed
    sums: Sums | None


_outputs = WeakTensorKeyDictionary()  # the _Output of each output of a convolution
# The norm that follows each convolution.
_norms: weakref.WeakKeyDictionary[nn.Conv2d, weakref.ref[nn.BatchNorm2d]] = weakref.WeakKeyDictionary()


def sums_for(layer: nn.Conv2d, x: Tensor) -> Sums | None:
    """The sums that a convolution of these inputs should compute; None without a known norm in training after it.

    The running mean of the norm is checked, because it may have been replaced since the last forward pass.
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
    """Record which layer computed an output, as long as the output exists, for the norm that may read it."""
    if torch.is_grad_enabled():
        _outputs[y] = _Output(layer, change_count(y), sums)


def partial_sums_for(norm: nn.BatchNorm2d, x: Tensor) -> Tensor | None:
    """The sums of the inputs of a norm in training, if a convolution computed them and nothing has changed since.

    The norm is recorded as the one that follows the convolution.
    """
    output: _Output | None = _outputs.get(x)  # type: ignore[no-untyped-call]
    if output is None or change_count(x) != output.changes:
        return None
    _norms[output.layer] = weakref.ref(norm)
    return output.sums.partial if output.sums is not None and output.sums.are_for(norm) else None
