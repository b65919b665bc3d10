"""Rules for operators that change the shape of a tensor, not the order of its elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from aacp.graph.labels import Ids, Labels, along, compact, varying
from aacp.graph.program import Call, UnsupportedUse
from aacp.graph.propagation import Propagation, Rule
from aacp.graph.rules.layout import like_other


def reshape(p: Propagation, call: Call) -> Labels:
    """view, reshape, flatten, unflatten: a merged dimension repeats ids; a split one is cut along one new dimension."""
    result = []
    for label in p.labels_of(call.tensors[0]):
        if label.numel() != math.prod(call.shape):
            raise UnsupportedUse("it changes the number of elements")
        shaped = compact(label.reshape(call.shape))
        if len(varying(shaped)) > 1 and len(varying(label)) == 1:
            shaped = _split(p, call, shaped)
        result.append(shaped)
    if call.operator in ("reshape_as", "view_as"):
        return like_other(p, call, tuple(result))
    _remember_sizes(p, call, result)
    return tuple(result)


def _split(p: Propagation, call: Call, label: torch.Tensor) -> torch.Tensor:
    """Choose the new dimension along which a split dimension is cut, unless ties leave only one choice."""
    known = compact(torch.from_numpy(p.ties.roots())[label.clamp(min=0)].where(label >= 0, label))
    dims = varying(known)
    if len(dims) < 2:
        return known
    allowed = [dim for dim in dims if dim not in p.excluded_splits.get(call.node.name, set())] or list(dims)
    # The number of heads, groups or sub-pixels is usually the smaller dimension, and part of the design: keep it.
    chosen = max(allowed, key=lambda dim: (label.size(dim), dim))
    lane = p.level(known, chosen, call.where)
    p.splits[call.node.name] = (chosen, lane)
    return along(lane, chosen, call.shape)


def _remember_sizes(p: Propagation, call: Call, labels: Sequence[torch.Tensor]) -> None:
    """Record which numbers of the new shape are sizes of dimensions with channels."""
    name = next((key for key in ("size", "shape", "sizes") if key in call.arguments), None)
    if name is None:
        return  # flatten takes no sizes
    listed = call[name]
    offset = len(call.shape) - len(listed) if call.operator != "unflatten" else call["dim"] % len(call.shape)
    for position, size in enumerate(listed):
        dim = position + offset
        lane = next((_lane(label, dim) for label in labels if dim in varying(label)), None)
        if size != -1:
            p.use_size(call, (name, position), size, lane)


def _lane(label: torch.Tensor, dim: int) -> Ids:
    """The ids of a label along one dimension, at the first index of all others."""
    index = [0] * label.dim()
    return label[tuple(slice(None) if d == dim else i for d, i in enumerate(index))].contiguous().numpy()


RULES: dict[str, Rule] = dict.fromkeys(
    ("view", "reshape", "flatten", "unflatten", "reshape_as", "view_as", "_unsafe_view", "_reshape_alias", "ravel"),
    reshape,
)
