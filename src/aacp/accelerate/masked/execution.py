"""Masked execution: the network runs at full width as if channels were absent, in shapes that never change.

Structures differ only in which weights are zero, so on a GPU every pass is one replay of a CUDA graph that was captured
once. `aacp.estimate.execution.Sliced` computes the same with networks that are really cut, up to the rounding of bf16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from aacp.accelerate.masked.repair import CapturedRepair, Repair
from aacp.accelerate.masked.static import StaticProgram, StaticRun, Statistics
from aacp.accelerate.masked.weights import MaskedWeights
from aacp.data.batches import Batches
from aacp.data.examples import Shapes, shapes_of, tensors_in
from aacp.errors import InvalidData
from aacp.estimate.inheritance import REPAIR, Inheritance
from aacp.estimate.recalibration import running_norms
from aacp.pytorch.gpus import multiplies_bf16, recorded
from aacp.pytorch.modules import copy_module, positional


class Masked(nn.Module):
    """The network masked to a structure; after `network(structure)` it is called like the network itself."""

    def __init__(self, inheritance: Inheritance) -> None:
        super().__init__()
        self._inheritance = inheritance
        self._calibration = _whole(inheritance.calibration)
        self._device = inheritance.device
        self._model = copy_module(inheritance.model).requires_grad_(False)
        self._has_norms = bool(running_norms(self._model))
        self._half = multiplies_bf16(self._device)
        self._weights = MaskedWeights(self._model, inheritance.graph, torch.bfloat16 if self._half else None)
        self._statistics = Statistics(self._model)
        self._repair: Repair | None = None
        if inheritance.reconstruction == REPAIR:
            kind = CapturedRepair if self._device.type == "cuda" else Repair
            self._repair = kind(inheritance.parallel_repair, self._weights)
        self._programs: list[StaticProgram] = []
        self._passes: dict[Any, Pass] = {}

    def network(self, structure: Iterable[int]) -> nn.Module:
        """The network with this structure, inherited, repaired if requested, and recalibrated.

        It is valid until the next call.
        """
        units = self._inheritance.units(structure)
        if self._repair is not None:
            self._repair(units)
        self._weights.keep(units)
        if self._has_norms:
            self._run(self._calibration, recalibrates=True)
        return self

    def forward(self, *arguments: Any, **named: Any) -> Any:
        inputs: Any = named or (arguments if len(arguments) > 1 else arguments[0])
        return self._run(inputs, recalibrates=False)

    def _run(self, inputs: Any, recalibrates: bool) -> Any:
        arguments = positional(self._model, inputs)
        tensors = list(tensors_in(arguments))
        shapes = shapes_of(arguments)
        with torch.no_grad(), self._precision():
            if (recalibrates, shapes) not in self._passes:
                kind = CapturedPass if self._device.type == "cuda" else Pass
                program = self._program(arguments, shapes)
                self._passes[recalibrates, shapes] = kind(program, self._weights, self._statistics, recalibrates)
            return self._passes[recalibrates, shapes](tensors)

    def _program(self, arguments: tuple[Any, ...], shapes: Shapes) -> StaticProgram:
        """A program for inputs of these shapes; exporting one takes a second or more."""
        for program in self._programs:
            if program.takes(shapes):
                return program
        self._programs.append(StaticProgram(self._model, self._inheritance.graph, arguments))
        return self._programs[-1]

    @contextmanager
    def _precision(self) -> Iterator[None]:
        if not self._half:
            yield
            return
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            yield


class Pass:
    """One pass of a static program over tensors of its shape.

    Args:
        program: the program.
        weights: the weights, masked to a structure.
        statistics: the statistics of the batch norms.
        recalibrates: whether the pass sets the statistics from its inputs; otherwise it normalises by them.
    """

    def __init__(
        self, program: StaticProgram, weights: MaskedWeights, statistics: Statistics, recalibrates: bool
    ) -> None:
        self._program = program
        self._weights = weights
        self._statistics = statistics
        self._recalibrates = recalibrates

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        copies = [tensor.clone() for tensor in tensors]  # the program may write into its inputs
        return self._program.packed(self._compute(copies))

    def _compute(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        run = StaticRun(self._program, self._weights, self._statistics, self._recalibrates)
        return [_as_expected(value) for value in run(self._weights.model, tensors)]


class CapturedPass(Pass):
    """A pass as a CUDA graph: captured in the first call, replayed in all others."""

    def __init__(
        self, program: StaticProgram, weights: MaskedWeights, statistics: Statistics, recalibrates: bool
    ) -> None:
        super().__init__(program, weights, statistics, recalibrates)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._inputs: list[torch.Tensor] = []
        self._outputs: list[torch.Tensor] = []

    def __call__(self, tensors: list[torch.Tensor]) -> Any:
        if self._graph is None:
            self._capture(tensors)
        assert self._graph is not None
        for buffer, tensor in zip(self._inputs, tensors, strict=True):
            buffer.copy_(tensor)
        self._graph.replay()
        return self._program.packed([output.clone() for output in self._outputs])  # the next replay overwrites them

    def _capture(self, tensors: list[torch.Tensor]) -> None:
        self._inputs = [_arranged(tensor) for tensor in tensors]
        self._graph, self._outputs = recorded(lambda: self._compute(self._inputs), self._weights.present.device)


def _whole(batches: Batches) -> Any:
    """The inputs of all images as one batch, so that statistics are exact."""
    joined = list(Batches.of(batches, batch_size=batches.images, device=batches.device).inputs())
    if len(joined) > 1:
        raise InvalidData(
            "The calibration images have several shapes, but masked execution needs one. "
            'Give images of one shape, or choose execution="sliced".'
        )
    return joined[0]


def _arranged(tensor: torch.Tensor) -> torch.Tensor:
    """A buffer for an input: channels last and in low precision for images, otherwise a copy."""
    if tensor.dim() != 4 or not tensor.is_floating_point():
        return tensor.clone()
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else tensor.dtype
    return torch.empty_like(tensor, dtype=dtype, memory_format=torch.channels_last).copy_(tensor)


def _as_expected(value: torch.Tensor) -> torch.Tensor:
    """An output in single precision and in the plain layout, which the functions of users may expect."""
    single = value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
    return single.contiguous()
