"""Costs that follow from shapes alone: multiply-accumulates, parameters, channels, peak activation memory.

Each is a callable from structures to numbers, vectorised: a matrix of structures, one a row, gives a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aacp.channels.elements import Tensor
from aacp.channels.graph import ChannelGraph


@dataclass(frozen=True)
class Cost:
    """A named number that a structure costs; `cost(structure)` is one number, `cost(matrix)` one per row."""

    name: str
    unit: str
    full: float  # the cost of the unpruned network
    _of_rows: Callable[[NDArray[np.int64]], NDArray[np.float64] | NDArray[np.int64]] = field(repr=False)
    source: str = field(default="", repr=False)  # where a user's function is defined that computes the cost

    def __call__(self, structures: ArrayLike) -> NDArray[np.float64] | NDArray[np.int64]:
        rows = np.asarray(structures, dtype=np.int64)
        values = self._of_rows(np.atleast_2d(rows))
        return values if rows.ndim > 1 else values[0]


def macs(graph: ChannelGraph) -> Cost:
    """Multiply-accumulates of convolutions, linear layers and matrix products on the traced example."""
    products = Products(
        [layer.macs_per_channel for layer in graph.layers], [layer.macs_lanes for layer in graph.layers]
    )
    return _cost("macs", "MACs", graph, lambda kept: products(graph.lane_sizes(kept)).sum(axis=1))


def params(graph: ChannelGraph) -> Cost:
    """Trainable and frozen parameters, shared ones once: what `sum(p.numel() for p in model.parameters())` counts."""
    numbers = _numbers([tensor for tensor in graph.tensors if tensor.is_parameter])
    return _cost("params", "parameters", graph, lambda kept: numbers(graph.lane_sizes(kept)).sum(axis=1))


def channel_count(graph: ChannelGraph) -> Cost:
    """Output channels of all convolutions, those of frozen groups too: the number of their filters.

    A convolution that is called several times counts once. Of one whose weights are not parameters, nothing is known.
    """
    lanes = {layer.name: layer.output for layer in graph.layers if layer.is_convolution and layer.output is not None}
    outputs = np.array(list(lanes.values()), dtype=np.int64)
    return _cost("channel_count", "channels", graph, lambda kept: graph.lane_sizes(kept)[:, outputs].sum(axis=1))


def weight_bytes(graph: ChannelGraph) -> Cost:
    """Bytes of all parameters and buffers in their precision: what a file of the weights holds, but for its header."""
    numbers, each = _numbers(graph.tensors), np.array([tensor.element_bytes for tensor in graph.tensors])
    return _cost("weight_bytes", "bytes", graph, lambda kept: (each * numbers(graph.lane_sizes(kept))).sum(axis=1))


def activation_bytes(graph: ChannelGraph) -> Cost:
    """Bytes of the activations alive at once, at their peak, when the network runs on the traced example."""
    products = Products([a.bytes_per_channel for a in graph.activations], [a.lanes for a in graph.activations])
    steps = 1 + max((activation.dies for activation in graph.activations), default=0)
    change = np.zeros((steps + 1, len(graph.activations)), dtype=np.int64)
    for column, activation in enumerate(graph.activations):
        change[activation.born, column] += 1
        change[activation.dies + 1, column] -= 1
    moments = np.unique(np.array([activation.born for activation in graph.activations], dtype=np.int64))  # peaks
    alive = np.cumsum(change, axis=0)[moments].astype(np.float64)

    def peak(kept: NDArray[np.int64]) -> NDArray[np.int64]:
        sizes = products(graph.lane_sizes(kept)).astype(np.float64)  # exact below 2^53 bytes, and BLAS is fast
        highest: NDArray[np.float64] = (sizes @ alive.T).max(axis=1, initial=0.0)
        return highest.astype(np.int64)

    return _cost("activation_bytes", "bytes", graph, peak)


class Products:
    """Many products of a constant and a few lane sizes, for many structures at once."""

    def __init__(self, constants: Sequence[int], lanes: Sequence[Sequence[int]]) -> None:
        depth = max((len(row) for row in lanes), default=0)
        self._constants = np.array(constants, dtype=np.int64)
        # One more "lane" of size 1 stands where a product has fewer factors than the longest.
        self._lanes = np.array([[*row, *[-1] * (depth - len(row))] for row in lanes], dtype=np.int64)
        self._lanes = self._lanes.reshape(len(constants), depth)

    def __call__(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        # One row for each lane: copying whole rows is several times faster than picking columns.
        padded = np.concatenate([sizes.T, np.ones((1, len(sizes)), dtype=np.int64)])
        result = np.tile(self._constants[:, None], len(sizes))
        for factor in self._lanes.T:
            result *= padded[factor]
        products: NDArray[np.int64] = result.T
        return products


def _numbers(tensors: Sequence[Tensor]) -> Products:
    """How many numbers each tensor holds."""
    fixed = [int(np.prod([size for size, lane in zip(t.shape, t.lanes, strict=True) if lane is None])) for t in tensors]
    return Products(fixed, [tuple(lane for lane in t.lanes if lane is not None) for t in tensors])


def _cost(name: str, unit: str, graph: ChannelGraph, rows: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Cost:
    full = rows(np.atleast_2d(np.asarray(graph.full, dtype=np.int64)))[0]
    return Cost(name, unit, int(full), rows)
