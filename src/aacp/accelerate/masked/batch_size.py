"""Programs for batches of any size: the exporter writes the size of its example wherever the network asks for it."""

from __future__ import annotations

from collections.abc import Iterator

from aacp.graph.labels import varying
from aacp.graph.program import Call
from aacp.graph.propagation import Propagation
from aacp.pytorch.internals import pytree

VIEWS = ("view", "reshape")


def allow_any_batch_size(p: Propagation, batch_size: int) -> bool:
    """Let the views of a program infer the size of the batch.

    Args:
        p: the labelled program, which is changed.
        batch_size: the size of the example.

    Returns:
        Whether the program now runs on batches of any size. It does not if one of its other numbers is a multiple of
        `batch_size`, because that number may have been computed from it.
    """
    for call in p.program.calls():
        if call.operator in VIEWS and call.shape[:1] == (batch_size,) and all(call.shape):
            call.node.update_arg(1, [-1, *call.shape[1:]])
    return not any(number and number % batch_size == 0 for number in _numbers(p))


def _numbers(p: Propagation) -> Iterator[int]:
    """The whole numbers in the calls of a program, and the sizes of its constants and along its channels."""
    for call in p.program.calls():
        yield from _numbers_of(call)
    for constant in p.program.constants.values():
        yield from constant.shape
    for results in p.labels.values():
        for label in (label for labels in results for label in labels):
            yield from (label.size(dim) for dim in varying(label))


def _numbers_of(call: Call) -> Iterator[int]:
    for leaf in pytree.tree_leaves((call.node.args, call.node.kwargs)):
        if isinstance(leaf, int) and not isinstance(leaf, bool):
            yield leaf
