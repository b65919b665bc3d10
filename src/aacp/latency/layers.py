"""Layers: the operators at which a network is divided into pieces, and what is known about each piece.

A piece is a convolution or product and everything that runs after it up to the next one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from aacp.channels.elements import Layer
from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.data.examples import moved
from aacp.errors import UntraceableModel
from aacp.latency.pieces import Piece, Width
from aacp.latency.runtimes.runtime import TimedLayer
from aacp.pytorch.modules import copy_module, device_of_model, positional

One = TypeVar("One")
Other = TypeVar("Other")

# The names of torch functions that multiply activations, besides convolutions.
PRODUCTS = {"linear", "matmul", "__matmul__", "__rmatmul__", "bmm", "addmm", "baddbmm", "mm", "einsum"}


def is_convolution(name: str) -> bool:
    """Return whether a torch function, given by name, is a convolution."""
    return name.startswith("conv")


def is_layer(name: str) -> bool:
    """Return whether a torch function, given by name, is a convolution or a product."""
    return is_convolution(name) or name in PRODUCTS


def describe_pieces(network: nn.Module, example: Any, graph: ChannelGraph) -> tuple[list[Layer], list[str]]:
    """Return the layers that begin a piece, and a description of each piece that does not depend on widths.

    All convolutions and products begin a piece. If the network calls other products than its graph lists (fused
    attention, for example), only convolutions do. Pieces with the same description differ in their widths alone.
    """
    recorder = _CallRecorder()
    twin = copy_module(network).eval()
    arguments = positional(network, moved(example, device_of_model(network)))
    with torch.inference_mode(), recorder:
        twin(*arguments)
    for begins, layers in (
        (is_layer, list(graph.layers)),
        (is_convolution, [layer for layer in graph.layers if layer.is_convolution]),
    ):
        places = [place for place, name in enumerate(recorder.names) if begins(name)]
        if places and len(places) == len(layers):
            return layers, _descriptions(recorder.descriptions, places)
    raise UntraceableModel(
        f"{graph.model} calls {len(places)} convolutions, but its graph has {len(layers)}: its pieces cannot be "
        "identified. Use a limit on macs instead of latency."
    )


def _descriptions(calls: Sequence[str], places: Sequence[int]) -> list[str]:
    """Join the descriptions of the calls of each piece; calls before the first layer belong to the first piece."""
    starts = [0, *places[1:]]
    ends = [*places[1:], len(calls)]
    return [", ".join(calls[start:end]) for start, end in zip(starts, ends, strict=True)]


class _CallRecorder(TorchFunctionMode):
    """Records the name and a description of every torch function that returns a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.descriptions: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(result, Tensor) and name != "__get__":
            self.names.append(name)
            self.descriptions.append(_described(name, args, result))
        return result


def _described(name: str, args: Sequence[Any], result: Tensor) -> str:
    """Describe a call by text that is the same for all widths."""
    size = "x".join(map(str, result.shape[2:]))
    if not is_convolution(name) or len(args) < 2:
        return f"{name} {size}".rstrip()
    weight = args[1]
    rest = list(args[3:])
    kernel = "x".join(map(str, weight.shape[2:]))
    groups = rest.pop() if len(rest) == 4 else 1
    kind = "" if groups == 1 else "depthwise " if weight.shape[1] == 1 else "grouped "
    return f"{kind}{name} {kernel} {rest} to {size}"


def pieces_of_graph(graph: ChannelGraph, layers: Sequence[Layer], descriptions: Sequence[str]) -> tuple[Piece, ...]:
    """Return each piece with the widths its time depends on: inputs, outputs, and what the next layer reads."""
    followers = [*(layer.input for layer in layers[1:]), None]
    found = []
    for layer, description, following in zip(layers, descriptions, followers, strict=True):
        lanes = [lane for lane in (layer.input, layer.output, following, *layer.macs_lanes) if lane is not None]
        widths = [Width.of(graph, lane) for lane in dict.fromkeys(lanes)]
        free = tuple(width for width in dict.fromkeys(widths) if width.groups)
        found.append(Piece(layer.name, f"{layer.kind}: {description}", tuple(layer.output_size), free))
    return tuple(found)


def timed_layers(graph: ChannelGraph, layers: Sequence[Layer], structure: Structure) -> list[TimedLayer]:
    """Return the layers of one structure, with their numbers of channels and MACs, as runtimes need them."""
    sizes = graph.lane_sizes(np.asarray(structure))
    found = []
    for layer in layers:
        channels = 0 if layer.output is None else int(sizes[layer.output])
        macs = layer.macs_per_channel * math.prod(int(sizes[lane]) for lane in layer.macs_lanes)
        found.append(TimedLayer(layer.name, layer.is_convolution, tuple(layer.output_size), channels, macs))
    return found


def piece_numbers(begins: Sequence[bool]) -> list[int]:
    """Return for each operator of a run the number of its piece; operators before the first layer belong to piece 0.

    Args:
        begins: whether each operator begins a piece, in the order of the run.
    """
    return [max(0, begun - 1) for begun in accumulate(map(int, begins))]


def matched(some: Sequence[One], others: Sequence[Other], fits: Callable[[One, Other], bool]) -> list[int]:
    """Match each item to one of the others, and return the positions of these.

    It is the first other that fits and is not taken yet or, if none fits, the first that is not taken. Layers and
    operators are matched by their outputs, because a runtime may run parallel branches in another order than torch.
    """
    left = dict(enumerate(others))
    found = []
    for one in some:
        place = next((place for place, other in left.items() if fits(one, other)), next(iter(left)))
        found.append(place)
        del left[place]
    return found
