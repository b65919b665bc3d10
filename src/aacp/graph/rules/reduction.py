"""Rules for reductions (sums, means, extrema), pooling, resizing and softmax."""

from __future__ import annotations

import numpy as np
import torch

from aacp.graph.labels import Labels, along, ids_of, varying
from aacp.graph.program import Call, shape_of
from aacp.graph.propagation import Propagation, Rule
from aacp.graph.rules.pointwise import pointwise


def reduce(p: Propagation, call: Call) -> Labels | list[Labels]:
    """Sums, means, norms, extrema: labels along reduced dimensions disappear, the others stay."""
    if "other" in call.arguments:
        return pointwise(p, call)  # torch.max(a, b)
    source = call.tensors[0]
    rank = len(shape_of(source))
    dims = set(call.reduced(rank))
    result = []
    for label in p.labels_of(source):
        inside = set(varying(label)) & dims
        if inside and _gives_positions(call):
            p.freeze_ids(ids_of(label), f"{call.where} returns positions of channels")
        elif inside and inside != set(varying(label)):
            p.ties.fix(ids_of(label), f"{call.where} reduces only some of the dimensions that these channels lie along")
        elif not inside:
            result.append(_without(label, dims, bool(call.get("keepdim"))))
    return [tuple(result) for _ in call.outputs]


def _gives_positions(call: Call) -> bool:
    """Whether the network uses the positions that max and min return with the values."""
    return call.operator in ("max", "min") and any(user.args[1:] == (1,) and user.users for user in call.node.users)


def _without(label: torch.Tensor, dims: set[int], keep: bool) -> torch.Tensor:
    """A label without some dimensions along which it does not vary, or with size 1 there."""
    for dim in sorted(dims, reverse=True):
        label = label.narrow(dim, 0, 1) if keep else label.select(dim, 0)
    return label


def pool(p: Propagation, call: Call) -> Labels | list[Labels]:
    """Pooling and resizing: the last dimensions change their size; channels along them are frozen."""
    source = call.tensors[0]
    results: list[Labels] = []
    for value in call.outputs:
        labels: list[torch.Tensor] = []
        for label in p.labels_of(source):
            channel = next((dim for dim in varying(label)), 0)
            if value is None or label.dim() - channel <= _spatial(call):
                p.freeze_ids(ids_of(label), f"{call.where} slides a window over channels")
                continue
            labels.append(along(p.level(label, channel, call.where), channel, tuple(value.shape)))
        results.append(tuple(labels))
    return results


def unpool(p: Propagation, call: Call) -> Labels | list[Labels]:
    """max_unpool: the channels of the values and of the positions, which a pooling returned, are tied."""
    channel = len(call.shape) - _spatial(call) - 1
    lanes = [p.lane(call[name], channel, call.where) for name in ("self", "indices")]
    p.tie_lanes(lanes[0], lanes[1], call.where)
    return pool(p, call)


def _spatial(call: Call) -> int:
    """The number of last dimensions that an operator such as max_pool2d works on."""
    return next(int(digit) for digit in call.operator if digit.isdigit())


def softmax(p: Propagation, call: Call) -> Labels:
    """softmax: channels along its dimension are frozen, because removing some would change the others."""
    source = call.tensors[0]
    dim = call["dim"] % len(shape_of(source))
    for label in p.labels_of(source):
        if dim in varying(label):
            p.freeze_ids(ids_of(label), f"{call.where} is computed over channels")
    return p.labels_of(source)


def unfold_windows(p: Propagation, call: Call) -> Labels:
    """im2col: [n, c, h, w] to [n, c * kernel, positions]."""
    for label in p.labels_of(call["self"]):
        if varying(label) != (1,):
            p.ties.fix(ids_of(label), f"{call.where} slides a window over channels")
    lane = p.lane(call["self"], 1, call.where)
    if lane is None or len(call.shape) != 3:
        return ()
    return (along(np.repeat(lane, call.shape[1] // len(lane)), 1, call.shape),)


_POOLS = [f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg", "lp") for n in (1, 2, 3)]
_POOLS += [f"max_pool{n}d_with_indices" for n in (1, 2, 3)]
_RESIZES = ["upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_bilinear2d"]
_RESIZES += ["upsample_bicubic2d", "upsample_linear1d", "upsample_trilinear3d", "_upsample_nearest_exact2d"]
_RESIZES += ["_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa", "reflection_pad2d", "replication_pad2d"]

RULES: dict[str, Rule] = dict.fromkeys(
    ("sum", "mean", "amax", "amin", "max", "min", "linalg_vector_norm", "norm"), reduce
)
RULES |= dict.fromkeys(("var", "std", "var_mean", "std_mean"), reduce)
RULES |= dict.fromkeys([*_POOLS, *_RESIZES], pool)
RULES |= {f"max_unpool{n}d": unpool for n in (2, 3)}
RULES |= {"softmax": softmax, "_softmax": softmax, "log_softmax": softmax, "im2col": unfold_windows}
