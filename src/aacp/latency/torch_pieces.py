"""Recording: a network of torch run once, with the time noted whenever a layer begins.

What runs between the beginnings of two layers, norms, activations, sums and python itself, counts as part of the
first: a *piece*. The pieces of a run add up to the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from aacp.channels import ChannelGraph, Layer
from aacp.errors import UntraceableModel
from aacp.latency.runtimes import on_device
from aacp.modules import copy_module, positional

PRODUCTS = {"linear", "matmul", "__matmul__", "__rmatmul__", "bmm", "addmm", "baddbmm", "mm", "einsum"}


def is_convolution(name: str) -> bool:
    return name.startswith("conv")


def is_layer(name: str) -> bool:
    return is_convolution(name) or name in PRODUCTS


class LayerMarker(TorchFunctionMode):
    """Calls `mark` before each layer of the functions that run under it."""

    def __init__(self, begins_piece: Callable[[str], bool], mark: Callable[[], None]) -> None:
        super().__init__()
        self._begins_piece, self._mark = begins_piece, mark

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._begins_piece(getattr(func, "__name__", "")):
            self._mark()
        return func(*args, **(kwargs or {}))


class TorchPieces:
    """A copy of a network, as a call that returns the seconds of each of its pieces."""

    def __init__(self, network: nn.Module, example: Any, begins_piece: Callable[[str], bool], device: str) -> None:
        self._network = copy_module(network).eval().to(device)
        self._arguments = positional(network, on_device(example, device))
        self._begins_piece, self._device = begins_piece, device
        self._notes: list[list[float]] = []

    def whole(self) -> None:
        """Run it as its user would, and wait for the end."""
        with torch.inference_mode():
            self._network(*self._arguments)
        if self._device != "cpu":
            torch.cuda.synchronize(self._device)

    def note(self) -> None:
        """Run it once with the time noted at the beginning of each piece."""
        self._notes.append(self._on_cpu() if self._device == "cpu" else self._on_cuda())

    def notes(self) -> list[list[float]]:
        """The seconds of each piece, for each time it was noted."""
        return self._notes

    def _on_cpu(self) -> list[float]:
        stamps: list[float] = []
        start = time.perf_counter()
        with torch.inference_mode(), LayerMarker(self._begins_piece, lambda: stamps.append(time.perf_counter())):
            self._network(*self._arguments)
        return between([start, *stamps, time.perf_counter()])

    def _on_cuda(self) -> list[float]:
        """The same with events, which the GPU stamps when it comes to them: launches it waits for are in."""
        events: list[Any] = []

        def mark() -> None:
            events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
            events[-1].record()

        mark()
        with torch.inference_mode(), LayerMarker(self._begins_piece, mark):
            self._network(*self._arguments)
        mark()
        torch.cuda.synchronize(self._device)
        return between([events[0].elapsed_time(event) / 1e3 for event in events])


def between(stamps: Sequence[float]) -> list[float]:
    """The seconds of each piece; what comes before the first layer belongs to it."""
    if len(stamps) < 3:
        return [stamps[-1] - stamps[0]]
    begins = [stamps[0], *stamps[2:-1]]
    return [after - before for before, after in zip(begins, [*begins[1:], stamps[-1]], strict=True)]


# -- what a piece is --------------------------------------------------------------------------------------------------


class _Listing(TorchFunctionMode):
    """Notes every call: its name, and what is fixed about it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if isinstance(result, Tensor) and name != "__get__":
            self.calls.append((name, _described(name, args, result)))
        return result


def _described(name: str, args: Sequence[Any], result: Tensor) -> str:
    """A call in words that are the same for all widths."""
    size = "x".join(map(str, result.shape[2:]))
    if not is_convolution(name) or len(args) < 2:
        return f"{name} {size}".rstrip()
    weight, rest = args[1], list(args[3:])
    kernel = "x".join(map(str, weight.shape[2:]))
    groups = rest.pop() if len(rest) == 4 else 1
    kind = "" if groups == 1 else "depthwise " if weight.shape[1] == 1 else "grouped "
    return f"{kind}{name} {kernel} {rest} to {size}"


def piece_kinds(network: nn.Module, example: Any, graph: ChannelGraph) -> tuple[list[Layer], list[str], bool]:
    """The layers that begin a piece, each piece in words, and whether convolutions alone begin one.

    Pieces with the same words do the same work but for their widths.
    """
    listing, twin = _Listing(), copy_module(network).eval()
    with torch.inference_mode(), listing:
        twin(*positional(network, example))
    for only_convolutions in (False, True):
        begins = is_convolution if only_convolutions else is_layer
        layers = [layer for layer in graph.layers if layer.is_convolution or not only_convolutions]
        places = [place for place, (name, _) in enumerate(listing.calls) if begins(name)]
        if places and len(places) == len(layers):
            ends = [*places[1:], len(listing.calls)]
            starts = [0, *places[1:]]
            words = [text for _, text in listing.calls]
            kinds = [", ".join(words[start:end]) for start, end in zip(starts, ends, strict=True)]
            return layers, kinds, only_convolutions
    raise UntraceableModel(
        f"{graph.model} calls {len(places)} convolutions, but its graph has {len(layers)}: its pieces cannot be told "
        "apart. Use a limit on macs instead of latency."
    )
