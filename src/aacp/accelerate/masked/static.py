"""A program whose shapes never change: structures differ only in the values of masks and masked weights.

It computes the same as `MaskedRun`, the reference for absent channels. But no decision in it depends on
data, so that it can be captured as a CUDA graph, and it delays batch norms and the operators after them until one
kernel can compute them together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from aacp.accelerate.kernels.dispatch import Convolution, Pending, moments
from aacp.accelerate.masked.batch_size import allow_any_batch_size
from aacp.accelerate.masked.weights import MaskedWeights
from aacp.channels.graph import ChannelGraph
from aacp.data.examples import Shapes, shapes_of
from aacp.data.moments import Moments
from aacp.estimate.recalibration import running_norms
from aacp.graph.masking import MaskedRun
from aacp.graph.program import Call, shape_of
from aacp.graph.units import UnitProgram
from aacp.pytorch.internals import is_mutable, pytree

TINY = torch.finfo(torch.float32).tiny
Affine = tuple[torch.Tensor, torch.Tensor]  # scale and shift of each channel


class Statistics:
    """The scale and shift that each batch norm of a network applies, from the statistics of its inputs."""

    def __init__(self, model: nn.Module) -> None:
        self._norms = {f"{name}.running_mean".removeprefix("."): norm for name, norm in running_norms(model).items()}
        self.affine: dict[str, Affine] = {}
        self._seen: dict[str, Moments] = {}

    def __contains__(self, name: str | None) -> bool:
        return name in self._norms

    def reset(self) -> None:
        """Forget what was seen, before a new pass over all calibration images."""
        self._seen.clear()

    def set_statistics(self, name: str, count: int, mean: torch.Tensor, variance: torch.Tensor) -> Affine:
        """Set the statistics of a batch norm to those of its input; `affine` then holds those of all calls of the pass.

        Args:
            name: the name of its running mean.
            count: values per channel.
            mean: the mean of each channel.
            variance: population variance of each channel.

        Returns:
            Scale and shift that normalise the input of this call.
        """
        now = Moments(count, mean, variance)
        now.require_spread(name.removesuffix("running_mean").removesuffix("."))
        affine = self.affine[name] = self._scaled(name, now)
        if name in self._seen:
            now = self._seen[name].plus(now)
            self.affine[name] = self._scaled(name, now)
        self._seen[name] = now
        return affine

    def _scaled(self, name: str, seen: Moments) -> Affine:
        norm = self._norms[name]
        # Absent channels are constantly zero. Without an eps their scale would be infinite and NaN would spread.
        variance = seen.variance + norm.eps if norm.eps else seen.variance.clamp(min=TINY)
        scale = torch.rsqrt(variance)
        scale = scale if norm.weight is None else scale * norm.weight
        shift = -seen.mean * scale if norm.bias is None else torch.addcmul(norm.bias, seen.mean, scale, value=-1.0)
        return scale, shift


class StaticProgram:
    """The exported program of a network for inputs of these shapes, with the unit of every element of its tensors."""

    def __init__(self, model: nn.Module, graph: ChannelGraph, arguments: tuple[Any, ...]) -> None:
        device = next(model.parameters()).device
        self._labelled = UnitProgram.of(model, graph, arguments)
        self.propagation = self._labelled.propagation
        calls = self.propagation.program.calls()
        self.uses = Counter(call["running_mean"] for call in calls if call.operator == "batch_norm")
        self._masks: dict[fx.Node, list[torch.Tensor]] = {}
        self._device = device
        self._shapes = shapes_of(arguments)
        batch_size = _common_batch_size(self._shapes)
        self._takes_any_batch = batch_size is not None and allow_any_batch_size(self.propagation, batch_size)

    def takes(self, shapes: Shapes) -> bool:
        """Whether the program runs on inputs of these shapes."""
        if shapes == self._shapes or not self._takes_any_batch:
            return shapes == self._shapes
        return _common_batch_size(shapes) is not None and _of_examples(shapes) == _of_examples(self._shapes)

    def packed(self, values: list[torch.Tensor]) -> Any:
        """The results in the nested tuples, lists or dictionaries that the network returns."""
        program = self.propagation.program
        found = iter(values)
        leaves = [next(found) if isinstance(leaf, fx.Node) else leaf for leaf in program.result_leaves]
        return pytree.tree_unflatten(leaves, program.output_spec)

    def mask(self, node: fx.Node, present: torch.Tensor) -> torch.Tensor | None:
        """Which elements of a tensor are present, in a shape that broadcasts to its own; None if no unit is in it."""
        if node not in self._masks:
            self._masks[node] = [unit.to(self._device) for unit in self._labelled.units_of_elements(node)]
        masks = [present[unit] for unit in self._masks[node]]  # -1 selects the last entry: always present
        return reduce(torch.logical_and, masks) if masks else None


class StaticRun(MaskedRun):
    """One run of a static program.

    Args:
        program: the program.
        weights: the weights, masked to a structure.
        statistics: the statistics of the batch norms.
        recalibrates: whether this run sets the statistics from its inputs; otherwise it normalises by them.
    """

    def __init__(
        self, program: StaticProgram, weights: MaskedWeights, statistics: Statistics, recalibrates: bool
    ) -> None:
        super().__init__(program.propagation, np.zeros(0, dtype=bool))  # `mask` reads the masks of the weights instead
        self._program = program
        self._weights = weights
        self._statistics = statistics
        self._recalibrates = recalibrates
        if recalibrates:
            statistics.reset()

    def __call__(self, model: nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        super().__call__(model, inputs)
        return [self._computed(node) for node in self._p.program.results]

    def mask(self, node: fx.Node) -> torch.Tensor | None:
        return self._program.mask(node, self._weights.present)

    def _call(self, call: Call) -> Any:
        fused = FUSED_OPERATORS.get(call.operator)
        result = fused(self, call) if fused is not None else None
        if result is None:
            if _is_in_place(call):  # delayed values may still need the old contents
                for node in list(self._values):
                    self._computed(node)
            for node in call.node.all_input_nodes:
                self._computed(node)
            return super()._call(call)
        if _is_in_place(call):
            self._values[call.node.all_input_nodes[0]] = result
        return result

    def filled(self, node: fx.Node, fill: float) -> Any:
        """A tensor with `fill` where its channels are absent; parameters are masked with zeros already."""
        name = self._p.program.tensors.get(node.name)
        masked = self._weights.tensors.get(name) if name is not None and fill == 0.0 else None
        return super().filled(node, fill) if masked is None else masked

    def masked_weight(self, call: Call) -> torch.Tensor | None:
        """The masked weight of a product, if the weight is a parameter itself and not computed from parameters."""
        return self._weights.tensors.get(self._p.program.tensors.get(call["weight"].name, ""))

    def _computed(self, node: fx.Node) -> Any:
        """The value of a node, computed now if it was delayed."""
        value = self._values[node]
        if isinstance(value, Convolution):
            value = value.run()
        elif isinstance(value, Pending):
            value = value.computed()
        self._values[node] = value
        return value

    def view(self, call: Call) -> torch.Tensor | None:
        """A reshaped tensor: a copy where channels lie last in memory, which the network's `view` does not allow."""
        value = self._computed(call["self"])
        return value.reshape(call["size"]) if all(isinstance(size, int) for size in call["size"]) else None

    # -- delayed operators ---------------------------------------------------------------------------------------------

    def convolution(self, call: Call) -> Convolution | None:
        """A convolution that only a batch norm reads, delayed and without its bias, which normalising would cancel.

        None if the batch norm has other uses, because its common statistics depend on the biases.
        """
        weight = self.masked_weight(call)
        users = [Call(user) for user in call.node.users]
        if weight is None or len(users) != 1 or self._norm(users[0]) is None or isinstance(call["padding"], str):
            return None
        if self._program.uses[users[0]["running_mean"]] > 1:
            return None
        x = self._computed(call["input"])
        stride = _pair(call["stride"])
        padding = _pair(call["padding"])
        dilation = _pair(call["dilation"])
        return Convolution(x.to(weight.dtype), weight, stride, padding, dilation, call["groups"])

    def batch_norm(self, call: Call) -> Pending | None:
        """A batch norm with running statistics, delayed."""
        name = self._norm(call)
        if name is None:
            return None
        source = self._values[call["input"]]
        source = source.computed() if isinstance(source, Pending) else source
        if self._recalibrates:
            source, mean, variance = moments(source)
            count = source.numel() // source.size(1)
            return Pending(source, *self._statistics.set_statistics(name, count, mean, variance))
        return Pending(source, *self._statistics.affine[name])

    def _norm(self, call: Call) -> str | None:
        """The name of the running mean of a batch norm in evaluation mode; None if it is not recalibrated."""
        if call.operator != "batch_norm" or call["training"] or call["running_mean"] is None:
            return None
        name = self._p.program.tensors.get(call["running_mean"].name)
        return name if name in self._statistics else None

    def clip(self, call: Call) -> Pending | None:
        """ReLU or ReLU6 of a delayed value."""
        top = math.inf if call.operator == "relu" else 6.0
        bounds = (call.get("min_val"), call.get("max_val"))
        value = self._values[call.node.all_input_nodes[0]]
        if (
            not isinstance(value, Pending)
            or value.top is not None
            or (call.operator == "hardtanh" and bounds != (0, 6))
        ):
            return None
        return value.clipped(top)

    def add(self, call: Call) -> Pending | None:
        """The sum of a delayed value and another tensor of the same shape."""
        nodes = [call["self"], call["other"]]
        if call.get("alpha") != 1 or not all(isinstance(node, fx.Node) for node in nodes) or nodes[0] is nodes[1]:
            return None
        if _is_in_place(call) and not isinstance(self._values[nodes[0]], Pending):
            return None  # views of the tensor that it writes into would miss the result
        for one, other in (nodes, nodes[::-1]):
            value = self._values[one]
            if isinstance(value, Pending) and value.top is None and value.residual is None:
                residual = self._computed(other)
                if isinstance(residual, torch.Tensor) and shape_of(other) == shape_of(one):
                    return value.plus(residual)
        return None


FUSED_OPERATORS: dict[str, Callable[[StaticRun, Call], Any]] = {
    "conv2d": StaticRun.convolution,
    "batch_norm": StaticRun.batch_norm,
    "relu": StaticRun.clip,
    "relu6": StaticRun.clip,
    "hardtanh": StaticRun.clip,
    "add": StaticRun.add,
    "view": StaticRun.view,
}


def _common_batch_size(shapes: Shapes) -> int | None:
    """The first size of all inputs; None if they differ or an input has no dimensions."""
    sizes = {shape[0] if shape else None for shape, _ in shapes}
    return sizes.pop() if len(sizes) == 1 else None


def _of_examples(shapes: Shapes) -> Shapes:
    """The shapes without their first sizes."""
    return tuple((shape[1:], dtype) for shape, dtype in shapes)


def _is_in_place(call: Call) -> bool:
    return is_mutable(call.node.target)


def _pair(value: Sequence[int]) -> tuple[int, int]:
    """One number for both dimensions, or one for each."""
    return value[0], value[-1]
