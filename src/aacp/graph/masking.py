"""Masking: run the original network as if channels were absent, without cutting it.

The exported program runs unchanged, except for the operators that combine the values of different channels: products
and sums use zeros for absent elements; means, variances, norms and extrema leave them out. All other operators work
element by element or move elements, so the values in an absent channel do not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import fx, nn

from aacp.graph.labels import Labels, core, varying
from aacp.graph.program import Call, shape_of
from aacp.graph.propagation import Propagation
from aacp.pytorch.modules import named_tensors


class MaskedRun:
    """One run of a traced program in which only the channel ids marked in `stays` are present."""

    def __init__(self, p: Propagation, stays: NDArray[np.bool_]) -> None:
        self._p = p
        # Label -1 means that an element is always present: as an index it selects the last entry.
        self._stays = torch.from_numpy(np.append(stays, True))
        self._values: dict[fx.Node, Any] = {}
        self._masks: dict[fx.Node, torch.Tensor | None] = {}
        self._readers: dict[fx.Node, int] = {}

    def __call__(self, model: nn.Module, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that the network returns, in order, with these weights and inputs."""
        self.start(model, inputs)
        for call in self._p.program.calls():
            self.step(call.node)
        return [self._values[node] for node in self._p.program.results]

    def start(self, model: nn.Module, inputs: list[torch.Tensor]) -> None:
        """Set the values that the first calls read; a weight that is changed in place later has its new value then."""
        weights = dict(named_tensors(model))
        program = self._p.program
        given = dict(zip(program.inputs, inputs, strict=True))
        for node in program.graph.nodes:
            if node.op == "placeholder":
                self._values[node] = self._placeholder(node, given, weights)

    def step(self, node: fx.Node) -> Any:
        """Run one call, for which all values that it reads must be there, and return its result."""
        result = self._values[node] = self._call(Call(node))
        self._forget_inputs(node)
        return result

    def _forget_inputs(self, node: fx.Node) -> None:
        """Drop values that no later call reads: the activations of a large network do not all fit in memory."""
        for source in node.all_input_nodes:
            self._readers[source] = self._readers.get(source, len(source.users)) - 1
            if not self._readers[source]:
                del self._values[source]

    def _placeholder(self, node: fx.Node, given: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Any:
        program = self._p.program
        if node.name in given:
            return given[node.name]
        for known in (program.constants, program.settings):
            if node.name in known:
                return known[node.name]
        return weights[program.tensors[node.name]].detach()

    def _call(self, call: Call) -> Any:
        masked = MASKED_OPERATORS.get(call.operator)
        if masked is not None and any(self.mask(node) is not None for node in call.tensors):
            return masked(self, call)
        return self.run_call(call)

    def run_call(self, call: Call, fill: float = 0.0, filled: Sequence[fx.Node] = ()) -> Any:
        """Run the operator itself, with the value `fill` in place of absent elements of the tensors in `filled`."""

        def value(node: fx.Node) -> Any:
            return self.filled(node, fill) if node in filled else self._values[node]

        args, kwargs = fx.node.map_arg((call.node.args, call.node.kwargs), value)
        return call.function(*args, **kwargs)

    # -- what masked operators use -------------------------------------------------------------------------------------

    def mask(self, node: fx.Node) -> torch.Tensor | None:
        """Which elements are present, in a shape that broadcasts to the tensor's; None if all are."""
        if node not in self._masks:
            device = node.meta["val"].device
            masks = [self._stays[core(label)].to(device) for label in self.labels(node)]
            self._masks[node] = reduce(torch.logical_and, masks) if not all(mask.all() for mask in masks) else None
        return self._masks[node]

    def value(self, node: fx.Node) -> Any:
        """The value of a node in this run; absent elements hold arbitrary numbers."""
        return self._values[node]

    def labels(self, node: fx.Node) -> Labels:
        """The labels of a tensor."""
        return self._p.labels_of(node)

    def mixes_channels(self, call: Call) -> bool:
        """Whether a reduction combines values of different channels."""
        source = call.tensors[0]
        dims = set(call.reduced(len(shape_of(source))))
        return any(dims & set(varying(label)) for label in self.labels(source))

    def filled(self, node: fx.Node, fill: float) -> Any:
        """The value of a tensor with `fill` in place of absent elements."""
        mask = self.mask(node)
        value = self._values[node]
        return value if mask is None else value.masked_fill(~mask, fill)

    def presence(self, node: fx.Node) -> torch.Tensor:
        """A tensor with 1 where an element is present and 0 where it is absent."""
        value = self._values[node]
        mask = self.mask(node)
        return torch.ones_like(value) if mask is None else mask.to(value.dtype).expand_as(value)


def _with_zeros(run: MaskedRun, call: Call) -> Any:
    """Products of activations: absent elements count as zero."""
    return run.run_call(call, 0.0, call.tensors)


def _sum(run: MaskedRun, call: Call) -> Any:
    """Sums and vector norms: absent elements count as zero."""
    return run.run_call(call, 0.0, call.tensors if run.mixes_channels(call) else ())


def _weighted(run: MaskedRun, call: Call) -> Any:
    """Products with weights: zeros in the weight remove the absent channels that it reads."""
    return run.run_call(call, 0.0, [call["weight"]])


def _mean(run: MaskedRun, call: Call) -> Any:
    """Means over the elements that are present."""
    if not run.mixes_channels(call):
        return run.run_call(call)
    source = call.tensors[0]
    dims = call.reduced(run.value(source).dim())
    keep = bool(call.get("keepdim"))
    count = run.presence(source).sum(dims, keepdim=keep).clamp(min=1)
    total: torch.Tensor = run.filled(source, 0.0).sum(dims, keepdim=keep)
    return (total / count).to(call.get("dtype") or total.dtype)


def _spread(run: MaskedRun, call: Call) -> Any:
    """var, std, var_mean, std_mean over the elements that are present."""
    if not run.mixes_channels(call):
        return run.run_call(call)
    source = call.tensors[0]
    dims = call.reduced(run.value(source).dim())
    correction = call.get("correction")
    if correction is None:
        correction = 0 if call.get("unbiased") is False else 1
    presence = run.presence(source)
    count = presence.sum(dims, keepdim=True)
    mean = run.filled(source, 0.0).sum(dims, keepdim=True) / count.clamp(min=1)
    freedom = torch.where(count == 0, 1.0, count - correction)  # where no element is present, any finite value will do
    squares = ((run.value(source) - mean) ** 2 * presence).sum(dims, keepdim=True) / freedom
    results = [squares.sqrt() if call.operator.startswith("std") else squares, mean]
    results = results if call.get("keepdim") else [result.squeeze(dims) for result in results]
    return tuple(results) if call.operator.endswith("mean") else results[0]


def _extremum(run: MaskedRun, call: Call) -> Any:
    """Maxima and minima over the elements that are present."""
    if "other" in call.arguments or not run.mixes_channels(call):
        return run.run_call(call)  # the larger of two tensors, or of elements of the same channel
    return run.run_call(call, float("-inf") if "max" in call.operator else float("inf"), call.tensors[:1])


def _normalised(
    run: MaskedRun, source: fx.Node, dims: list[int], eps: float, centred: bool = True, groups: int = 1
) -> torch.Tensor:
    """A tensor minus its mean, divided by its standard deviation, both over the elements that are present."""
    value = run.filled(source, 0.0)
    presence = run.presence(source)
    if groups > 1:
        value = value.reshape(value.size(0), groups, -1, *value.shape[2:])
        presence = presence.reshape(value.shape)
        dims = list(range(2, value.dim()))
    count = presence.sum(dims, keepdim=True).clamp(min=1)
    mean = value.sum(dims, keepdim=True) / count if centred else value.new_zeros(())
    variance = ((value - mean) ** 2 * presence).sum(dims, keepdim=True) / count
    normal: torch.Tensor = (value - mean) * (variance + eps).rsqrt()
    return normal.reshape(run.value(source).shape)


def _affine(run: MaskedRun, call: Call, value: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Multiply by the weight and add the bias of a norm, where it has them."""
    for name, function in (("weight", torch.mul), ("bias", torch.add)):
        if call.get(name) is not None:
            value = function(value, run.value(call[name]).reshape(shape))
    return value


def _layer_norm(run: MaskedRun, call: Call) -> torch.Tensor:
    shape = list(call["normalized_shape"])
    eps = call["eps"]
    if eps is None:
        eps = torch.finfo(run.value(call["input"]).dtype).eps
    dims = list(range(-len(shape), 0))
    value = _normalised(run, call["input"], dims, eps, centred=call.operator == "layer_norm")
    return _affine(run, call, value, shape)


def _group_norm(run: MaskedRun, call: Call) -> torch.Tensor:
    value = run.value(call["input"])
    rest = list(range(1, value.dim()))
    normal = _normalised(run, call["input"], rest, call["eps"], groups=call["num_groups"])
    return _affine(run, call, normal, [1, -1, *[1] * (value.dim() - 2)])


def _batch_norm(run: MaskedRun, call: Call) -> Any:
    """Running statistics need no masking; statistics of the batch (standardised weights) leave absent elements out."""
    if not (call.get("training") or call.get("use_input_stats")):
        return run.run_call(call)
    value = run.value(call["input"])
    dims = [dim for dim in range(value.dim()) if dim > 1 or (dim == 0 and call.operator == "batch_norm")]
    normal = _normalised(run, call["input"], dims, call["eps"])
    return _affine(run, call, normal, [1, -1, *[1] * (value.dim() - 2)])


MaskedOperator: TypeAlias = Callable[[MaskedRun, Call], Any]
MASKED_OPERATORS: dict[str, MaskedOperator] = dict.fromkeys(
    ("matmul", "mm", "bmm", "addmm", "baddbmm", "mv", "dot", "vdot", "einsum"), _with_zeros
)
MASKED_OPERATORS |= dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu", "_weight_norm"), _with_zeros)
MASKED_OPERATORS |= dict.fromkeys(("sum", "linalg_vector_norm", "norm"), _sum)
MASKED_OPERATORS |= {"scaled_dot_product_attention": _with_zeros, "linear": _weighted}
MASKED_OPERATORS |= {f"conv{kind}{n}d": _weighted for kind in ("", "_transpose") for n in (1, 2, 3)}
MASKED_OPERATORS |= dict.fromkeys(("var", "std", "var_mean", "std_mean"), _spread)
MASKED_OPERATORS |= {"mean": _mean, "layer_norm": _layer_norm, "rms_norm": _layer_norm}
MASKED_OPERATORS |= dict.fromkeys(("amax", "amin", "max", "min"), _extremum)
MASKED_OPERATORS |= {"group_norm": _group_norm, "batch_norm": _batch_norm, "instance_norm": _batch_norm}
