"""Rules for convolutions of one to three dimensions: plain, transposed, grouped and depthwise."""

from __future__ import annotations

import math

import numpy as np
from torch import fx

from aacp.graph.labels import Ids, Labels, along, ids_of, varying
from aacp.graph.program import Call, shape_of
from aacp.graph.propagation import Propagation, Rule, TracedLayer


def convolution(p: Propagation, call: Call) -> Labels:
    """conv1d, conv2d, conv3d: weight [out, in / groups, kernel...]."""
    source = call["input"]
    weight = call["weight"]
    channel_dim = _check_input(p, call)
    groups = call["groups"] or 1
    inputs = p.lane(source, channel_dim, call.where)
    outputs = p.lane(weight, 0, call.where)
    taken = p.lane(weight, 1, call.where)  # the input channels that one group of the weight reads
    per_group = shape_of(weight)[0] // groups, shape_of(weight)[1]
    if groups == 1:
        p.tie_lanes(inputs, taken, call.where)
    elif 1 in per_group:
        outputs = _whole_groups(p, call, groups, inputs, outputs)
        p.tie_lanes(taken, None, call.where)
    else:
        if inputs is not None:
            p.tie_lanes(p.tie_slots(inputs, groups, call.where), taken, call.where)
        else:
            p.tie_lanes(taken, None, call.where)
        if outputs is not None:
            p.tie_slots(outputs, groups, call.where)
    _record(p, call, inputs, outputs, (outputs, taken), math.prod(call.shape[channel_dim + 1 :]))
    return _output_labels(p, call, outputs, channel_dim)


def transposed_convolution(p: Propagation, call: Call) -> Labels:
    """conv_transpose1d, 2d, 3d: weight [in, out / groups, kernel...]."""
    source = call["input"]
    weight = call["weight"]
    channel_dim = _check_input(p, call)
    groups = call["groups"] or 1
    inputs = p.lane(source, channel_dim, call.where)
    taken = p.lane(weight, 0, call.where)
    outputs = p.lane(weight, 1, call.where)  # the output channels of one group
    macs_lanes = (taken, outputs)
    p.tie_lanes(inputs, taken, call.where)
    per_group = shape_of(weight)[0] // groups, shape_of(weight)[1]
    if groups > 1 and 1 in per_group:
        p.tie_lanes(outputs, None, call.where)
        first = None if taken is None else taken.reshape(groups, -1)[:, 0]
        outputs = _whole_groups(p, call, groups, taken, None if first is None else np.repeat(first, per_group[1]))
    elif groups > 1:
        if taken is not None:
            p.tie_slots(taken, groups, call.where)
        outputs = None if outputs is None else np.tile(outputs, groups)
    _record(p, call, inputs, outputs, macs_lanes, math.prod(shape_of(source)[channel_dim + 1 :]))
    return _output_labels(p, call, outputs, channel_dim)


def _check_input(p: Propagation, call: Call) -> int:
    """Freeze channels that do not lie along the channel dimension of the input; returns that dimension."""
    source = call["input"]
    weight = call["weight"]
    channel_dim = len(shape_of(source)) - (len(shape_of(weight)) - 2) - 1
    for label in p.labels_of(source):
        if channel_dim not in varying(label):
            p.freeze_ids(ids_of(label), f"{call.where} slides a window over channels{_replacement(weight)}")
    for label in p.labels_of(weight):
        if not set(varying(label)) & {0, 1}:
            p.ties.fix(ids_of(label), f"{call.where} has a fixed kernel size")
    return channel_dim


def _replacement(weight: fx.Node) -> str:
    """What to do about a window of one input and one output, as in efficient channel attention."""
    is_single = shape_of(weight)[:2] == (1, 1) and len(shape_of(weight)) == 3
    return "; a linear layer can take its place (docs/tracing.md#windows-that-slide-over-channels)" if is_single else ""


def _whole_groups(p: Propagation, call: Call, groups: int, inputs: Ids | None, outputs: Ids | None) -> Ids | None:
    """Depthwise and similar convolutions: a group is removed as a whole, with everything that it reads and writes."""
    if inputs is None or outputs is None:
        p.tie_lanes(inputs, outputs, call.where)
        return outputs
    reads = inputs.reshape(groups, -1)
    writes = outputs.reshape(groups, -1)
    p.ties.tie(np.repeat(reads[:, 0], reads.shape[1]), reads, call.where)
    p.ties.tie(np.repeat(reads[:, 0], writes.shape[1]), writes, call.where)
    p.use_size(call, ("groups", None), groups, np.ascontiguousarray(writes[:, 0]))
    return outputs


def layer_name(call: Call, weight: fx.Node, p: Propagation) -> str:
    """The path of the module that makes the call, or of the module inside it that holds the weight."""
    holder = p.program.tensors.get(weight.name, "").rpartition(".")[0]
    return holder if holder.startswith(f"{call.module}.") or not call.module else call.module


def _record(
    p: Propagation, call: Call, inputs: Ids | None, outputs: Ids | None, lanes: tuple[Ids | None, ...], positions: int
) -> None:
    """Record a convolution as a layer.

    Args:
        p: the propagation.
        call: the convolution.
        inputs: the ids of its input channels.
        outputs: the ids of its output channels.
        lanes: the ids along the first two dimensions of its weight.
        positions: the number of positions at which the kernel is applied, per image.
    """
    weight = shape_of(call["weight"])
    batch = call.shape[0] if len(call.shape) == len(weight) else 1
    fixed = math.prod(size for size, lane in zip(weight[:2], lanes, strict=True) if lane is None)
    p.layers.append(
        TracedLayer(
            name=layer_name(call, call["weight"], p),
            kind=call.operator,
            kernel=weight[2:],
            output_size=call.shape[len(call.shape) - len(weight) + 2 :],
            input=inputs,
            output=outputs,
            macs_per_channel=batch * positions * math.prod(weight[2:]) * fixed,
            macs_lanes=tuple(lane for lane in lanes if lane is not None),
        )
    )


def _output_labels(p: Propagation, call: Call, outputs: Ids | None, channel_dim: int) -> Labels:
    """Tie the bias to the output channels; returns the labels of the result."""
    if call["bias"] is not None:
        p.tie_lanes(outputs, p.lane(call["bias"], 0, call.where), call.where)
    return () if outputs is None else (along(outputs, channel_dim, call.shape),)


RULES: dict[str, Rule] = {f"conv{n}d": convolution for n in (1, 2, 3)}
RULES |= {f"conv_transpose{n}d": transposed_convolution for n in (1, 2, 3)}
