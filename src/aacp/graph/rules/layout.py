"""Rules for operators that move elements: the operators themselves are run on the labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from aacp.graph.labels import Ids, Labels, along, ids_of, varying
from aacp.graph.program import Call, UnsupportedUse, shape_of
from aacp.graph.propagation import Propagation, Rule
from aacp.graph.rules.pointwise import combine


def moved(p: Propagation, call: Call) -> Labels | list[Labels]:
    """Operators that move whole channels or positions, such as permute: any channel can be removed."""
    source = call.tensors[0]
    results: list[list[torch.Tensor]] = [[] for _ in call.outputs]
    for label in p.labels_of(source):
        moved_label = apply(call, {source: label})
        parts = moved_label if isinstance(moved_label, (list, tuple)) else [moved_label]
        for position, part in enumerate(parts):
            results[position].append(part)
    return [tuple(labels) for labels in results]


def apply(call: Call, values: dict[fx.Node, torch.Tensor]) -> Any:
    """Run the operator of a call on other tensors."""

    def value(node: fx.Node) -> Any:
        if node not in values:
            raise UnsupportedUse("where it moves elements is computed while the network runs")
        return values[node]

    args, kwargs = fx.node.map_arg((call.node.args, call.node.kwargs), value)
    return call.function(*args, **kwargs)


def repeated(p: Propagation, call: Call) -> Labels:
    """repeat and tile: copies of whole dimensions; a dimension of size 1 becomes a new dimension."""
    source = call["self"]
    name = "repeats" if "repeats" in call.arguments else "dims"
    shape = call.shape
    result = list(moved(p, call)[0])
    missing = len(shape) - len(shape_of(source))
    for dim, size in enumerate(shape):
        if size > 1 and (dim < missing or shape_of(source)[dim - missing] == 1):
            label = p.new_dimension(shape, dim)
            position = dim - (len(shape) - len(call[name]))  # `tile` may list the last dimensions only
            p.use_size(call, (name, position), call[name][position], ids_of(label))
            result.append(label)
    return tuple(result)


def expand(p: Propagation, call: Call) -> Labels:
    """expand and expand_as: a dimension of size 1 becomes a new dimension."""
    source = call["self"]
    shape = call.shape
    result = [label.expand(shape) for label in p.labels_of(source)]
    missing = len(shape) - len(shape_of(source))
    for dim, size in enumerate(shape):
        if size > 1 and (dim < missing or shape_of(source)[dim - missing] == 1):
            label = p.new_dimension(shape, dim)
            if call.operator == "expand":
                p.use_size(call, ("size", dim), size, ids_of(label))
            result.append(label)
    return like_other(p, call, tuple(result)) if call.operator == "expand_as" else tuple(result)


def like_other(p: Propagation, call: Call, labels: Labels) -> Labels:
    """Labels of a result that takes its shape from the argument `other`: the two are tied."""
    for dim in range(len(call.shape)):
        mine = next((label for label in labels if dim in varying(label)), None)
        theirs = p.lane(call["other"], dim, call.where)
        lane = None if mine is None else p.level(mine, dim, call.where)
        p.tie_lanes(lane, theirs, call.where)
    return labels


def cat(p: Propagation, call: Call) -> Labels:
    """Concatenation: labels are concatenated along its dimension and tied along the others."""
    operands: list[fx.Node] = [node for node in call["tensors"] if math.prod(shape_of(node))]
    shape = call.shape
    dim = call["dim"] % len(shape)
    joined = [
        next((label for label in p.labels_of(node) if dim in varying(label)), torch.full(shape_of(node), -1))
        for node in operands
    ]
    others: dict[tuple[int, ...], torch.Tensor] = {}
    for node in operands:
        for label in p.labels_of(node):
            if dim not in varying(label):
                others.setdefault(varying(label), label)
    for dims, first in others.items():
        _join(p, call, operands, dims, first)
    whole = [first.narrow(dim, 0, 1).expand(shape) for first in others.values()]
    return (torch.cat(joined, dim), *whole)


def _join(p: Propagation, call: Call, operands: Sequence[fx.Node], dims: tuple[int, ...], first: torch.Tensor) -> None:
    """Tie the labels that vary along `dims`; an operand without such a label has a fixed size."""
    for node in operands:
        label = next((label for label in p.labels_of(node) if varying(label) == dims), None)
        if label is None:
            p.ties.fix(ids_of(first), f"{call.where} combines them with a tensor of fixed size")
        else:
            p.ties.tie(ids_of(first), ids_of(label), call.where)


def stack(p: Propagation, call: Call) -> Labels:
    """Stacking in a new dimension: elements at the same place are tied."""
    operands = list(call["tensors"])
    labels = combine(p, call, operands, shape_of(operands[0]))
    dim = call["dim"] % len(call.shape)
    return tuple(label.unsqueeze(dim).expand(call.shape) for label in labels)


def pad(p: Propagation, call: Call) -> Labels:
    """Padding: along a channel dimension, the padding forms channels of its own that may be removed."""
    source = call["self"]
    amounts = list(call["pad"])
    shape = call.shape
    result = []
    for label in p.labels_of(source):
        dims = varying(label)
        padded = range(len(amounts) // 2)
        grown = [len(shape) - 1 - i for i in padded if amounts[2 * i] or amounts[2 * i + 1]]
        if not set(dims) & set(grown):
            result.append(_respread(label, dims, shape))
            continue
        if len(dims) > 1 or call.get("mode") not in (None, "constant") or min(amounts) < 0:
            p.ties.fix(ids_of(label), f"{call.where} pads channels in a way that is not supported")
            continue
        result.append(along(_padded(p, call, ids_of(label), dims[0], amounts), dims[0], shape))
    return tuple(result)


def _respread(label: torch.Tensor, dims: tuple[int, ...], shape: tuple[int, ...]) -> torch.Tensor:
    """A label for another shape, which differs only in dimensions along which the label does not vary."""
    for dim in range(label.dim()):
        if dim not in dims:
            label = label.narrow(dim, 0, 1)
    return label.expand(shape)


def _padded(p: Propagation, call: Call, lane: Ids, dim: int, amounts: list[int]) -> Ids:
    """The ids along a padded dimension, with new ids for the padding before and after."""
    position = 2 * (len(call.shape) - 1 - dim)
    before = p.ties.fresh(amounts[position])
    after = p.ties.fresh(amounts[position + 1])
    p.use_size(call, ("pad", position), len(before), before)
    p.use_size(call, ("pad", position + 1), len(after), after)
    return np.concatenate([before, lane, after])


def shuffle_channels(p: Propagation, call: Call) -> Labels | list[Labels]:
    """channel_shuffle: the groups lose the same channels."""
    lane = p.lane(call["self"], 1, call.where)
    if lane is not None:
        p.tie_slots(lane, call["groups"], call.where)
    return moved(p, call)


def shuffle_pixels(p: Propagation, call: Call) -> Labels:
    """pixel_shuffle and its inverse: a block of channels becomes one channel with more pixels."""
    source = call["self"]
    shape = call.shape
    dim = len(shape) - 3
    for label in p.labels_of(source):
        if varying(label) != (dim,):
            p.ties.fix(ids_of(label), f"{call.where} mixes channels and positions")
    lane = p.lane(source, dim, call.where)
    if lane is None:
        return ()
    if call.operator == "pixel_unshuffle":
        return (along(np.repeat(lane, shape[dim] // len(lane)), dim, shape),)
    blocks = lane.reshape(shape[dim], -1)
    p.ties.tie(np.repeat(blocks[:, 0], blocks.shape[1]), blocks, call.where)
    return (along(np.ascontiguousarray(blocks[:, 0]), dim, shape),)


_MOVED = """
adjoint flip fliplr flipud mT moveaxis movedim numpy_T permute repeat_interleave squeeze swapaxes swapdims t
transpose unsqueeze
""".split()

RULES: dict[str, Rule] = dict.fromkeys(_MOVED, moved)
RULES |= {"cat": cat, "concat": cat, "concatenate": cat, "stack": stack, "pad": pad, "constant_pad_nd": pad}
RULES |= {"expand": expand, "expand_as": expand, "repeat": repeated, "tile": repeated}
RULES |= {"channel_shuffle": shuffle_channels, "pixel_shuffle": shuffle_pixels, "pixel_unshuffle": shuffle_pixels}
