"""Rules for operators that create tensors: their dimensions are free until they are tied to one that is not."""

from __future__ import annotations

from aacp.graph.labels import Labels, ids_of
from aacp.graph.program import Call
from aacp.graph.propagation import Propagation, Rule


def filled(p: Propagation, call: Call) -> Labels:
    """zeros, ones, full, empty and their `new_` forms: all elements are equal, so any size will do."""
    labels = []
    for dim, size in enumerate(call.shape):
        if size > 1:
            label = p.new_dimension(call.shape, dim)
            p.use_size(call, ("size", dim), size, ids_of(label))
            labels.append(label)
    return tuple(labels)


def filled_like(p: Propagation, call: Call) -> Labels:
    """zeros_like, ones_like, ...: the result has the shape, and so the channels, of another tensor."""
    return p.labels_of(call.tensors[0])


def numbered(p: Propagation, call: Call) -> Labels:
    """arange, eye, linspace: the elements differ, so the size is fixed."""
    return ()


RULES: dict[str, Rule] = dict.fromkeys(
    ("zeros", "ones", "full", "empty", "new_zeros", "new_ones", "new_full", "new_empty"), filled
)
RULES |= dict.fromkeys(("zeros_like", "ones_like", "full_like", "empty_like"), filled_like)
RULES |= dict.fromkeys(("arange", "eye", "linspace", "scalar_tensor"), numbered)
