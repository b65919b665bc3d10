"""Rules for normalisation layers: removed channels do not count in the statistics."""

from __future__ import annotations

from aacp.graph.labels import Labels
from aacp.graph.program import Call, shape_of
from aacp.graph.propagation import Propagation, Rule


def per_channel(p: Propagation, call: Call) -> Labels:
    """batch_norm, instance_norm: weight, bias and running statistics are tied to the channels (dimension 1)."""
    lane = p.lane(call["input"], 1, call.where)
    for name in ("weight", "bias", "running_mean", "running_var"):
        if call.get(name) is not None:
            p.tie_lanes(lane, p.lane(call[name], 0, call.where), call.where)
    return p.labels_of(call["input"])


def over_last_dimensions(p: Propagation, call: Call) -> Labels:
    """layer_norm, rms_norm: weight and bias are tied to the last dimensions."""
    shape = list(call["normalized_shape"])
    first = len(call.shape) - len(shape)
    for position, size in enumerate(shape):
        lane = p.lane(call["input"], first + position, call.where)
        p.use_size(call, ("normalized_shape", position), size, lane)
        for name in ("weight", "bias"):
            if call.get(name) is not None:
                p.tie_lanes(lane, p.lane(call[name], position, call.where), call.where)
    return p.labels_of(call["input"])


def over_groups(p: Propagation, call: Call) -> Labels:
    """group_norm: the groups lose the same channels; groups of one channel are removed one by one."""
    lane = p.lane(call["input"], 1, call.where)
    groups = call["num_groups"]
    if lane is not None and groups > 1:
        if groups == shape_of(call["input"])[1]:
            p.use_size(call, ("num_groups", None), groups, lane)
        else:
            p.tie_slots(lane, groups, call.where)
    for name in ("weight", "bias"):
        if call.get(name) is not None:
            p.tie_lanes(lane, p.lane(call[name], 0, call.where), call.where)
    return p.labels_of(call["input"])


def weight_norm(p: Propagation, call: Call) -> Labels:
    """_weight_norm: direction v times length g, one length per index of `dim`; the norm is over what remains of v."""
    dim = call["dim"]
    lane = p.lane(call["v"], dim, call.where)
    p.tie_lanes(lane, p.lane(call["g"], dim, call.where), call.where)
    return p.labels_of(call["v"])


RULES: dict[str, Rule] = {"batch_norm": per_channel, "instance_norm": per_channel, "group_norm": over_groups}
RULES |= {"layer_norm": over_last_dimensions, "rms_norm": over_last_dimensions, "_weight_norm": weight_norm}
