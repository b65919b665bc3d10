"""Rules for operators that take parts of a tensor: slices, splits, single indices, windows."""

from __future__ import annotations

import numpy as np
import torch
from torch import fx

from aacp.graph.labels import Labels, along, ids_of, varying
from aacp.graph.program import Call, shape_of
from aacp.graph.propagation import Propagation, Rule
from aacp.graph.rules.layout import apply, moved


def slice_(p: Propagation, call: Call) -> Labels | list[Labels]:
    """slice: a range of a dimension, or every n-th index of it."""
    source = call["self"]
    dim = call["dim"] or 0
    lane = p.lane(source, dim, call.where)
    if lane is None:
        return moved(p, call)
    step = call["step"] or 1
    size = len(lane)
    for name in ("start", "end"):
        bound = call[name]
        if bound is None or bound >= size or bound == 0 or -bound >= size:
            continue
        part = lane[:bound] if bound > 0 else lane[bound:]
        p.use_size(call, (name, None), bound, part, whole=lane)
        if step != 1:
            p.ties.fix(lane, f"{call.where} takes every {step}th channel of a part")
    if step != 1:
        if size % step:
            p.ties.fix(lane, f"{call.where} takes every {step}th of {size} channels")
        else:
            p.ties.tie(np.repeat(lane.reshape(-1, step)[:, 0], step), lane, call.where)
    return moved(p, call)


def narrow(p: Propagation, call: Call) -> Labels | list[Labels]:
    """narrow: a range of a dimension, given by its start and length."""
    lane = p.lane(call["self"], call["dim"], call.where)
    if lane is not None:
        start = call.number("start")
        length = call.number("length")
        p.use_size(call, ("start", None), start, lane[:start], whole=lane)
        p.use_size(call, ("length", None), length, lane[start:][:length], whole=lane)
    return moved(p, call)


def split(p: Propagation, call: Call) -> Labels | list[Labels]:
    """split and chunk: parts of equal size lose the same channels; parts of listed sizes are independent."""
    source = call["self"]
    dim = call["dim"] or 0
    lane = p.lane(source, dim, call.where)
    if lane is None:
        return moved(p, call)
    sizes = [int(value.shape[dim]) for value in call.outputs if value is not None]
    listed = call.get("split_sizes") or call.get("split_size")
    if isinstance(listed, (list, tuple)):
        start = 0
        name = "split_sizes" if "split_sizes" in call.arguments else "split_size"
        for position, size in enumerate(sizes):
            p.use_size(call, (name, position), size, lane[start : start + size], whole=lane)
            start += size
    elif len(set(sizes)) == 1:
        part = p.tie_slots(lane, len(sizes), call.where)
        if listed is not None:
            p.use_size(call, ("split_size", None), listed, part)
    else:
        p.ties.fix(lane, f"{call.where} splits {len(lane)} channels into unequal parts")
    return moved(p, call)


def gate(p: Propagation, call: Call) -> Labels:
    """glu: the first half of a dimension times the sigmoid of the second."""
    source = call["self"]
    dim = call["dim"] % len(call.shape)
    lane = p.lane(source, dim, call.where)
    others = tuple(label for label in p.labels_of(source) if dim not in varying(label))
    halves = () if lane is None else (along(p.tie_slots(lane, 2, call.where), dim, call.shape),)
    return (*halves, *(label.narrow(dim, 0, call.shape[dim]) for label in others))


def index(p: Propagation, call: Call) -> Labels:
    """Indexing with tensors: channels along indexed dimensions are frozen, the others keep their labels."""
    source = call["self"]
    rank = len(shape_of(source))
    indices = call["indices"] if "indices" in call.arguments else [*[None] * (call["dim"] % rank), call["index"]]
    result = []
    for label in p.labels_of(source):
        if any(node is not None and dim in varying(label) for dim, node in enumerate(indices)):
            p.ties.fix(ids_of(label), f"{call.where} selects channels by index")
        else:
            zeros = {node: torch.zeros(shape_of(node), dtype=torch.int64) for node in indices if node is not None}
            result.append(apply(call, {source: label, **zeros}))
    return tuple(result)


def unfold(p: Propagation, call: Call) -> Labels | list[Labels]:
    """unfold: overlapping windows along a dimension, whose channels are frozen."""
    fix_dimension(p, call, call["self"], call["dimension"])
    return moved(p, call)


def fixed_along(p: Propagation, call: Call) -> Labels | list[Labels]:
    """select, roll, ...: positions along a dimension matter, so its channels are frozen."""
    dims = call.get("dims") if call.get("dims") is not None else call.get("dim")
    for dim in dims if isinstance(dims, (list, tuple)) else [dims]:
        fix_dimension(p, call, call.tensors[0], 0 if dim is None else dim)
    return moved(p, call)


def fix_dimension(p: Propagation, call: Call, node: fx.Node, dim: int) -> None:
    """Freeze the channels along one dimension."""
    rank = len(shape_of(node))
    for label in p.labels_of(node):
        if dim % rank in varying(label):
            p.freeze_ids(ids_of(label), f"{call.where} depends on the positions of channels")


RULES: dict[str, Rule] = dict.fromkeys(("roll", "select", "unbind", "rot90"), fixed_along)
RULES |= dict.fromkeys(("split", "split_with_sizes", "chunk", "unsafe_split", "unsafe_chunk"), split)
RULES |= {"slice": slice_, "narrow": narrow, "glu": gate, "unfold": unfold, "index": index, "index_select": index}
