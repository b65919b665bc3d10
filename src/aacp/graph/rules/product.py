"""Rules for products: linear layers, matrix products, einsum, attention.

All of them are contractions: dimensions are named by letters, dimensions with the same letter are tied, and the result
has the dimensions whose letters it keeps.
"""

from __future__ import annotations

import math
import string
from collections.abc import Sequence

from torch import fx

from aacp.graph.labels import Ids, Labels, along
from aacp.graph.program import Call, UnsupportedUse, shape_of
from aacp.graph.propagation import UNCOUNTED, Propagation, Rule, TracedLayer
from aacp.graph.rules.convolution import layer_name
from aacp.graph.rules.pointwise import combine


def contract(p: Propagation, call: Call, operands: Sequence[tuple[fx.Node, str]]) -> dict[str, Ids | None]:
    """Tie lanes with the same letter; returns the lane of each letter. Dimensions of size 1 are broadcast, not tied."""
    lanes: dict[str, Ids | None] = {}
    for node, letters in operands:
        for dim, letter in enumerate(letters):
            if shape_of(node)[dim] == 1:
                continue
            lane = p.lane(node, dim, call.where)
            if letter in lanes:
                p.tie_lanes(lanes[letter], lane, call.where)
            lanes[letter] = lanes.get(letter) if lanes.get(letter) is not None else lane
    return lanes


def _labels(lanes: dict[str, Ids | None], result: str, shape: Sequence[int]) -> Labels:
    """The labels of a result whose dimensions have these letters."""
    found = [(dim, lanes.get(letter)) for dim, letter in enumerate(result)]
    return tuple(along(lane, dim, shape) for dim, lane in found if lane is not None)


def _sizes(operands: Sequence[tuple[fx.Node, str]]) -> dict[str, int]:
    """The size of the dimension of each letter."""
    sizes: dict[str, int] = {}
    for node, letters in operands:
        for size, letter in zip(shape_of(node), letters, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return sizes


def _record(
    p: Propagation, call: Call, name: str, kind: str, lanes: dict[str, Ids | None], sizes: dict[str, int], io: str = ""
) -> None:
    """Record a layer that costs one multiplication per combination of indices of all its letters.

    Args:
        p: the propagation.
        call: the product.
        name: the name of the layer.
        kind: the kind of the layer.
        lanes: the lane of each letter.
        sizes: the size of each letter.
        io: the letters of the input and output channels, if the layer has weights.
    """
    labelled = [lane for letter, lane in lanes.items() if letter in sizes and lane is not None]
    fixed = math.prod(size for letter, size in sizes.items() if lanes.get(letter) is None)
    inputs = lanes.get(io[0]) if io else None
    outputs = lanes.get(io[1]) if io else None
    size = call.shape[:-1] if io else call.shape
    p.layers.append(TracedLayer(name, kind, (), size, inputs, outputs, fixed, tuple(labelled)))


def linear(p: Propagation, call: Call) -> Labels:
    """linear: input [..., i], weight [o, i], bias [o]."""
    source = call["input"]
    weight = call["weight"]
    batch = string.ascii_uppercase[: len(shape_of(source)) - 1]
    operands = [(source, batch + "i"), (weight, "oi")]
    lanes = contract(p, call, operands)
    if call["bias"] is not None:
        p.tie_lanes(lanes.get("o"), p.lane(call["bias"], 0, call.where), call.where)
    _record(p, call, layer_name(call, weight, p), "linear", lanes, _sizes(operands), "io")
    return _labels(lanes, batch + "o", call.shape)


def matmul(p: Propagation, call: Call) -> Labels:
    """matmul, mm, bmm: [..., m, k] times [..., k, n], batch dimensions broadcast."""
    first, second = call.tensors if len(call.tensors) == 2 else call.tensors * 2
    return _matmul(p, call, first, second)


def _matmul(p: Propagation, call: Call, first: fx.Node, second: fx.Node) -> Labels:
    """The product of two tensors; torch treats a vector as a row on the left and a column on the right."""
    ranks = len(shape_of(first)), len(shape_of(second))
    batch = string.ascii_uppercase[: max(*ranks, 2) - 2]
    left = (batch + "mk")[-ranks[0] :] if ranks[0] > 1 else "k"
    right = (batch + "kn")[-ranks[1] :] if ranks[1] > 1 else "k"
    result = batch + ("m" if ranks[0] > 1 else "") + ("n" if ranks[1] > 1 else "")
    operands = [(first, left), (second, right)]
    lanes = contract(p, call, operands)
    if ranks[1] > 1:  # torch's counter, which ours must equal, ignores products with a vector on the right
        _record(p, call, call.module, "matmul", lanes, _sizes(operands))
    return _labels(lanes, result, call.shape)


def add_matmul(p: Propagation, call: Call) -> Labels:
    """addmm, baddbmm: a bias plus a product."""
    names = ("mat1", "mat2") if "mat1" in call.arguments else ("batch1", "batch2")
    p.labels[call.node] = [_matmul(p, call, call[names[0]], call[names[1]])]
    return combine(p, call, [call.node, call["self"]], call.shape)


def einsum(p: Propagation, call: Call) -> Labels:
    """einsum of one or two tensors with plain letters; other equations are not supported."""
    equation = call["equation"].replace(" ", "")
    nodes = list(call["tensors"])
    left, _, result = equation.partition("->")
    parts = left.split(",")
    plain = "->" in equation and "." not in equation and all(len(set(part)) == len(part) for part in parts)
    if not plain or len(nodes) > 2:
        raise UnsupportedUse(f"the equation {equation!r} is not of the form ab,bc->ac with at most two operands")
    operands = list(zip(nodes, parts, strict=True))
    lanes = contract(p, call, operands)
    if len(nodes) == 2 and any(letter not in result for letter in left.replace(",", "")):
        _record(p, call, call.module, "matmul", lanes, _sizes(operands))
    return _labels(lanes, result, call.shape)


def attention(p: Propagation, call: Call) -> Labels:
    """scaled_dot_product_attention: query [..., l, e], key [..., s, e], value [..., s, v], mask [..., l, s]."""
    query = call["query"]
    key = call["key"]
    value = call["value"]
    mask = call["attn_mask"]
    batch = string.ascii_uppercase[: len(shape_of(query)) - 2]
    products = [(query, batch + "le"), (key, batch + "se")]
    operands = [*products, (value, batch + "sv")]
    masks = [] if mask is None else [(mask, (batch + "ls")[-len(shape_of(mask)) :])]
    lanes = contract(p, call, [*operands, *masks])
    for letter in "ls":
        _forbid(p, lanes, letter, f"{call.where} computes a softmax over channels")
    if call["scale"] is None:
        # The default scale depends on the width of a head: cutting it would change what the kept channels compute.
        _forbid(p, lanes, "e", f"{call.where} scales by the width of a head")
    kind = UNCOUNTED if p.next_attention_is_fused() else "attention"
    if kind == UNCOUNTED and shape_of(key)[-1] == shape_of(value)[-1]:
        _keep_fused(p, call, lanes)
    _record(p, call, call.module, kind, lanes, _sizes(products))
    _record(p, call, call.module, kind, lanes, {k: s for k, s in _sizes(operands).items() if k != "e"})
    return _labels(lanes, batch + "lv", call.shape)


def _keep_fused(p: Propagation, call: Call, lanes: dict[str, Ids | None]) -> None:
    """Keep values as wide as keys: torch uses its fused kernel, which is fast and not counted, only then."""
    reason = f"{call.where} is fused only if values are as wide as keys"
    if call["scale"] is None or lanes.get("e") is None:
        _forbid(p, lanes, "v", reason)
    else:
        p.tie_lanes(lanes["e"], lanes.get("v"), reason)


def _forbid(p: Propagation, lanes: dict[str, Ids | None], letter: str, reason: str) -> None:
    """Freeze the channels of a letter, if it has any."""
    lane = lanes.get(letter)
    if lane is not None:
        p.freeze_ids(lane, reason)


RULES: dict[str, Rule] = {"linear": linear, "einsum": einsum, "scaled_dot_product_attention": attention}
RULES |= dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot", "vdot", "__matmul__"), matmul)
RULES |= dict.fromkeys(("addmm", "baddbmm"), add_matmul)
