"""Likeness: how close the outputs of a network are to those of the original, a score that needs no labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from aacp.data.batches import Batches
from aacp.data.examples import bytes_of, call, tensors_in
from aacp.data.layouts import computing_layout
from aacp.errors import InvalidData
from aacp.pytorch.layout import guard, lay_out
from aacp.pytorch.modules import private_copy

LIKENESS = "likeness"  # the name of this score in run.json, summaries and reports
MAX_KEPT = 256 << 20  # bytes of the original's outputs that are kept; more are computed again for every score


class Likeness:
    """A score: 1 minus the squared error of the outputs over the variance of the original's outputs; 1 is equal.

    The variance is that around the mean of each channel, so that constant outputs score 0. If a network has several
    outputs, the score is the mean of their scores. Outputs that are constant, or whole numbers, are left out.

    Args:
        original: the network whose outputs are to be kept; it is copied when it is first needed.
    """

    __name__ = LIKENESS

    def __init__(self, original: nn.Module) -> None:
        self._original = original
        self._copies: dict[torch.device, nn.Module] = {}
        # A search scores every structure on the same batches: what the original computes for them is kept.
        self._references: WeakKeyDictionary[Batches, _Reference] = WeakKeyDictionary()

    @torch.no_grad()
    def __call__(self, network: nn.Module, batches: Batches) -> float:
        reference = self._references.get(batches)
        if reference is None:
            reference = _Reference.of(self._outputs(self._copy_for(batches), batches))
            self._references[batches] = reference
        kept = reference.outputs or self._outputs(self._copy_for(batches), batches)
        errors = torch.zeros(len(reference.variances), dtype=torch.float64)
        for found, expected in zip(self._outputs(network, batches), kept, strict=True):
            errors += _squared_errors(found, expected)
        varying = reference.variances > 0
        if not len(varying):
            raise InvalidData(
                "The outputs of the unpruned network hold no tensors of real numbers in tuples, lists or dictionaries, "
                "so no likeness to them can be computed. Let it return such tensors, or give your own score function."
            )
        if not bool(varying.any()):
            raise InvalidData(
                "The outputs of the unpruned network are constant on these inputs, so no likeness to them can be "
                "computed. Give other inputs, or your own score function."
            )
        return 1 - float((errors[varying] / reference.variances[varying]).mean())

    def _copy_for(self, batches: Batches) -> nn.Module:
        """A copy of the original on the device of the data, in the layout in which networks are scored there."""
        if batches.device not in self._copies:
            twin = private_copy(self._original, batches.device)
            lay_out(twin, computing_layout(twin, batches))
            guard(twin)
            self._copies[batches.device] = twin
        return self._copies[batches.device]

    @staticmethod
    def _outputs(network: nn.Module, batches: Batches) -> Iterator[list[Tensor]]:
        """The outputs of a network for each batch: all tensors of floating-point numbers."""
        for inputs in batches.inputs():
            found = tensors_in(call(network, inputs))
            yield [tensor.float() for tensor in found if tensor.is_floating_point()]


@dataclass(frozen=True, eq=False)
class _Reference:
    """What the original computes for some batches.

    Args:
        variances: the sum of squares of each output around the means of its channels.
        outputs: the outputs for each batch; empty if they are too large to be kept.
    """

    variances: Tensor
    outputs: list[list[Tensor]]

    @classmethod
    def of(cls, outputs: Iterator[list[Tensor]]) -> _Reference:
        kept: list[list[Tensor]] = []
        size = 0
        moments: list[_Moments] = []
        for batch in outputs:
            moments = moments or [_Moments() for _ in batch]
            for moment, tensor in zip(moments, batch, strict=True):
                moment.add(tensor)
            size += bytes_of(batch)
            kept = [*kept, batch] if size <= MAX_KEPT else []
        variances = torch.tensor([moment.variance for moment in moments], dtype=torch.float64)
        return cls(variances, kept if size <= MAX_KEPT else [])


@dataclass(eq=False)
class _Moments:
    """Counts, sums and sums of squares of the channels of an output, by the number of channels."""

    sums: dict[int, Any] = field(default_factory=dict)

    def add(self, output: Tensor) -> None:
        if not output.numel():  # a detector that finds nothing
            return
        channels = output.transpose(0, 1).flatten(1) if output.dim() > 1 else output.reshape(1, -1)
        values = channels.double()
        count = torch.full_like(values[:, 0], values.shape[1])
        found = torch.stack([count, values.sum(1), values.square().sum(1)]).cpu()
        self.sums[len(values)] = self.sums.get(len(values), 0) + found

    @property
    def variance(self) -> float:
        """The sum of squares around the means; differences that rounding explains are 0."""
        total = 0.0
        for count, first, second in self.sums.values():
            around = second - first.square() / count
            total += float(around[around > 1e-12 * second].sum())
        return total


def _squared_errors(found: list[Tensor], expected: list[Tensor]) -> Tensor:
    """The squared error of each output."""
    if [tensor.shape for tensor in found] != [tensor.shape for tensor in expected]:
        raise InvalidData(
            f"The outputs have shapes {[tuple(tensor.shape) for tensor in found]}, those of the unpruned network "
            f"{[tuple(tensor.shape) for tensor in expected]}. Give your own score function."
        )
    differences = [(one - other).double().square().sum() for one, other in zip(found, expected, strict=True)]
    return torch.stack(differences).cpu() if differences else torch.zeros(0, dtype=torch.float64)
