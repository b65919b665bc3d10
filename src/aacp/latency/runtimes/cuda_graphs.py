"""The runtime cuda-graphs: the module captured as a CUDA graph, whose kernels a GPU starts without waiting for Python.

At batch 1 most of the time of the runtime torch is spent in Python and in launches of kernels, whatever the widths are.
A graph has neither, so that fewer channels can be faster.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from aacp.errors import ExportFailed, first_line
from aacp.latency.runtimes.runtime import PieceTimer, RecordedPieces, TimedLayer
from aacp.latency.runtimes.torch import LayerMarker, TorchNetwork, TranslatedTorch, beginning_test, seconds_between
from aacp.pytorch.gpus import current_gpu, new_stream, recorded

# Older versions of torch cannot read the events of a graph: there the time of a batch is divided by MACs.
HAS_EXTERNAL_EVENTS = "external" in inspect.signature(torch.cuda.Event.__new__).parameters
WARMUP_RUNS = 3  # before the capture: libraries choose kernels and allocate memory in the first runs


class CudaGraphs(TranslatedTorch):
    """torch in inference mode, captured as a CUDA graph for the shapes of the example."""

    name = "cuda-graphs"
    title = "CUDA graphs"
    devices = ("cuda",)

    def translate(self, module: nn.Module, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        return CapturedNetwork(module, example, device).run

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> PieceTimer:
        if not HAS_EXTERNAL_EVENTS:
            return super().prepare_pieces(network, example, layers, device=device, threads=threads)
        return CapturedPieces(network, example, beginning_test(layers), device)


class CapturedNetwork:
    """A module captured on a GPU. Every run reads the tensors it was captured with, and writes to the same outputs."""

    def __init__(self, network: nn.Module, example: Any, device: str) -> None:
        self._name = type(network).__name__
        self._device = device
        self._prepared = TorchNetwork(network, example, device)
        self._warm_up()
        self._graph, self._result = self.capture(self._forward)

    def run(self) -> object:
        """Run one batch, and wait until the GPU has finished it."""
        self._graph.replay()
        self.wait()
        return self._result

    def wait(self) -> None:
        self._prepared.wait()

    def capture(self, function: Callable[[], object]) -> tuple[torch.cuda.CUDAGraph, object]:
        """Return the graph of what a function computes, and the tensors that the graph writes its results to."""
        try:
            with torch.inference_mode():
                return recorded(function, self._device, prepares=False)
        except Exception as error:  # the code of the network may raise anything, or do what a capture does not allow
            raise ExportFailed(
                f"{self._name} cannot be captured as a CUDA graph: {first_line(error)}. Remove what waits for the GPU "
                "in its forward, such as .item(), or use the runtime torch."
            ) from error

    def capture_marked(self, begins_piece: Callable[[str], bool], mark: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Return another graph of the module, captured with a call of `mark` before each layer that begins a piece."""

        def run() -> object:
            with LayerMarker(begins_piece, mark):
                return self._forward()

        graph, _ = self.capture(run)
        return graph

    def _forward(self) -> object:
        return self._prepared.network(*self._prepared.arguments)

    def _warm_up(self) -> None:
        """Run a few batches on a stream other than the default one, as the capture does."""
        with current_gpu(self._device), torch.cuda.stream(new_stream(self._device)):
            for _ in range(WARMUP_RUNS):
                self._prepared.run()


class CapturedPieces(RecordedPieces):
    """Times the pieces of a captured module: the graph records an event whenever a layer begins.

    `run` replays a graph without events, because events separate kernels and so take time.

    Args:
        network: a module in evaluation mode, which is moved to the device.
        example: one batch of inputs.
        begins_piece: whether a torch function, given by name, begins a piece.
        device: where to run.
    """

    def __init__(self, network: nn.Module, example: Any, begins_piece: Callable[[str], bool], device: str) -> None:
        super().__init__()
        self._device = device
        self._network = CapturedNetwork(network, example, device)
        self._events: list[torch.cuda.Event] = []
        self.run = self._network.run
        self._graph = self._network.capture_marked(begins_piece, self._mark)

    def run_timed(self) -> None:
        """Run one batch and record the seconds of each piece."""
        with current_gpu(self._device):
            begin, end = _event(), _event()
            begin.record()
            self._graph.replay()
            end.record()
        self._network.wait()
        stamps = [begin.elapsed_time(event) / 1e3 for event in (begin, *self._events, end)]
        self._recorded.append(seconds_between(stamps))

    def _mark(self) -> None:
        self._events.append(_event(external=True))  # an event that can be read outside of the graph
        self._events[-1].record()


def _event(**settings: bool) -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True, **settings)  # type: ignore[no-untyped-call]
