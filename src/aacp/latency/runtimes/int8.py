"""Int8: the base of all runtimes that quantise networks to int8.

It chooses the inputs on which the ranges of activations are found, and compares a quantised file with torch in float.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aacp.data.batches import Batches
from aacp.data.examples import call, tensors_in
from aacp.data.likeness import Likeness
from aacp.disk.failures import writing_errors
from aacp.disk.writing import move_files, temporary_folder
from aacp.errors import ExportFailed, InvalidData, InvalidOption
from aacp.graph.examples import batch_of, in_batches
from aacp.latency.runtimes.converted import FileRuntime
from aacp.latency.runtimes.runtime import INT8, QuantizedFile
from aacp.pytorch.modules import positional

COMPARED_BATCHES = 4  # batches of calibration inputs on which a quantised file is compared with torch


@dataclass(frozen=True, eq=False)
class Calibration:
    """The inputs that ranges of activations are found on.

    Args:
        images: batches of inputs on the CPU; None uses the example of each call.
    """

    images: Sequence[Any] | None

    def __post_init__(self) -> None:
        if self.images is not None and not len(self.images):
            raise InvalidOption(
                "There are no inputs to find the ranges of activations on, which int8 needs. Give at least one batch, "
                "or use the precision float32."
            )

    def inputs(self, example: Any) -> Sequence[Any]:
        """Return the batches of inputs, in the form of the example."""
        return [example] if self.images is None else self.images

    def arguments(self, network: nn.Module, example: Any) -> list[tuple[Any, ...]]:
        """Return the same batches in the order of the network's arguments, which is that of the inputs of a file."""
        return [positional(network, inputs) for inputs in self.inputs(example)]

    def tensors(self, network: nn.Module, example: Any) -> Iterator[tuple[Tensor, ...]]:
        """Yield the tensors of these arguments, in batches of the example's size.

        Args:
            network: the network that the inputs are for.
            example: the inputs that a file of one batch size is written for.
        """
        for arguments in self.arguments(network, example):
            for part in in_batches(arguments, batch_of(example)):
                yield tensors_in(part)


class Int8(FileRuntime):
    """A mixin that makes a runtime quantise every network to int8; it precedes the class of the float runtime.

    Args:
        images: batches of inputs on the CPU to find the ranges of activations on; None uses the example of each call.
    """

    def __init__(self, images: Sequence[Any] | None) -> None:
        self._calibration = Calibration(images)

    def precision(self, network: nn.Module) -> str:
        return INT8

    def export(self, network: nn.Module, path: Path, example: Any) -> QuantizedFile:
        """Write a network in int8, and compare it with torch in float."""
        with temporary_folder(path) as folder, writing_errors(path):
            draft = folder / path.name
            self.write(network, draft, example)
            likeness, difference = self._likeness_and_difference(network, draft, example)
            size = move_files(folder, path)
        return QuantizedFile(path, size, difference, likeness)

    def _likeness_and_difference(self, network: nn.Module, path: Path, example: Any) -> tuple[float | None, float]:
        """Return the likeness of a file's outputs to torch's, and their largest difference.

        No tolerance is applied, because rounding to 8 bits changes outputs. The outputs must depend on nothing but the
        inputs.
        """
        images = self._calibration.inputs(example)[:COMPARED_BATCHES]
        first = self.module_of(path, network, example)
        _require_repeatable(first, self.module_of(path, network, example), images[0], path)
        largest = max(_largest_difference(network, first, inputs) for inputs in images)
        try:
            likeness = Likeness(network)(first, Batches([(inputs, None) for inputs in images]))
        except InvalidData:  # constant outputs have no likeness
            return None, largest
        return likeness, largest


def require_single_precision(network: nn.Module) -> None:
    """Reject a network whose weights are not float32."""
    kinds = {value.dtype for value in network.parameters() if value.is_floating_point()} - {torch.float32}
    if kinds:
        names = " and ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise InvalidOption(
            f"Weights of {type(network).__name__} are {names}, but only float32 can be quantised to int8. Convert the "
            "network with .float(), or use the precision float32, which runs it as it is."
        )


@torch.no_grad()
def _require_repeatable(one: nn.Module, other: nn.Module, inputs: Any, path: Path) -> None:
    """Reject a file whose outputs differ between two calls, or between two sessions."""
    first = tensors_in(call(one, inputs))
    for network in (one, other):
        for before, now in zip(first, tensors_in(call(network, inputs)), strict=True):
            if not torch.equal(before.nan_to_num(), now.nan_to_num()):
                raise ExportFailed(
                    f"{path.name} returns different outputs when it is called again with the same inputs. Use the "
                    "precision float32, and report this network to us."
                )


@torch.no_grad()
def _largest_difference(network: nn.Module, quantized: nn.Module, inputs: Any) -> float:
    pairs = zip(tensors_in(call(network, inputs)), tensors_in(call(quantized, inputs)), strict=True)
    return max(float((one.double() - other.double()).abs().max()) for one, other in pairs if one.numel())
