"""Rules for element-wise operators: the channels that they combine are tied."""

from __future__ import annotations

import torch
from torch import fx

from aacp.graph.labels import Ids, Labels, along, core, ids_of, varying
from aacp.graph.program import Call, shape_of
from aacp.graph.propagation import Propagation, Rule

SUMS = {"add", "sub", "rsub", "__iadd__"}


def pointwise(p: Propagation, call: Call) -> Labels:
    """Broadcast every operand to the shape of the result and tie channels at the same place."""
    return combine(p, call, call.tensors, call.shape)


def combine(p: Propagation, call: Call, operands: list[fx.Node], shape: tuple[int, ...]) -> Labels:
    """Tie the labels of operands that are broadcast to one shape; returns the labels of the result.

    Args:
        p: the propagation.
        call: the call, for messages.
        operands: the tensors that are combined.
        shape: the shape that they are broadcast to.
    """
    result: dict[tuple[int, ...], torch.Tensor] = {}
    for node in operands:
        for label in p.labels_of(node):
            wide = label.expand(shape)
            dims = varying(wide)
            for other in operands:
                if other is not node and _spans(other, dims, len(shape)):
                    _meet(p, call, wide, node, other)
            result.setdefault(dims, wide)
    return tuple(result.values())


def _spans(node: fx.Node, dims: tuple[int, ...], rank: int) -> bool:
    """Whether a tensor that is broadcast to this rank has a size above 1 in any of these dimensions."""
    shape = shape_of(node)
    missing = rank - len(shape)
    return any(dim >= missing and shape[dim - missing] > 1 for dim in dims)


def _meet(p: Propagation, call: Call, label: torch.Tensor, node: fx.Node, other: fx.Node) -> None:
    """Tie a label of one operand to that of another; freeze it if the other has none along its dimensions."""
    dims = varying(label)
    for candidate in p.labels_of(other):
        wide = candidate.expand(label.shape)
        if varying(wide) == dims:
            p.ties.tie(ids_of(label), ids_of(wide), call.where)
            if call.operator in SUMS and p.is_activation(node) and p.is_activation(other):
                p.streams.append(ids_of(label))
            return
    p.ties.fix(core(label).reshape(-1).numpy(), f"{call.where} combines them with a tensor of fixed size")


def only_input(p: Propagation, call: Call) -> Labels:
    """to and type_as: a second tensor only gives the type."""
    return p.labels_of(call.tensors[0])


def prelu(p: Propagation, call: Call) -> Labels:
    """prelu: one slope per channel, or one for all."""
    slope: Ids | None = p.lane(call["weight"], 0, call.where)
    if slope is not None:
        p.tie_lanes(p.lane(call["self"], 1, call.where), slope, call.where)
        shape = shape_of(call["self"])
        return (*[label for label in p.labels_of(call["self"]) if 1 not in varying(label)], along(slope, 1, shape))
    return p.labels_of(call["self"])


def pick(p: Propagation, call: Call) -> Labels:
    """getitem: one of several results of a call."""
    source, position = call.node.args
    results = p.labels.get(source, [])  # type: ignore[arg-type]
    return results[position] if position < len(results) else ()  # type: ignore[operator,index]


def nothing(p: Propagation, call: Call) -> Labels:
    """Operators that only check something and return no channels."""
    return ()


_POINTWISE = """
_conj _to_copy abs acos acosh add addcdiv addcmul alias alpha_dropout asin asinh atan atan2 atanh bitwise_and
bitwise_not bitwise_or ceil celu clamp clamp_max clamp_min clone contiguous copy cos cosh detach div dropout elu eq
erf erfc exp exp2 expm1 feature_alpha_dropout feature_dropout fill float floor floor_divide fmod frac ge gelu gt
hardshrink hardsigmoid hardswish hardtanh isfinite isinf isnan le leaky_relu lerp lift_fresh lift_fresh_copy log log10
log1p log2 log_sigmoid logical_and logical_not logical_or lt masked_fill maximum minimum mish mul nan_to_num ne neg
positive pow reciprocal relu relu6 remainder resolve_conj resolve_neg round rrelu rsqrt rsub selu sigmoid sign silu
sin sinh softplus softshrink softsign special_expit sqrt square sub tan tanh tanhshrink threshold true_divide trunc
where xlogy zero
""".split()

RULES: dict[str, Rule] = dict.fromkeys(_POINTWISE, pointwise)
RULES |= {"type_as": only_input, "to": only_input, "prelu": prelu, "getitem": pick}
RULES |= {"_assert_tensor_metadata": nothing, "_assert_async": nothing, "sym_size": nothing}
