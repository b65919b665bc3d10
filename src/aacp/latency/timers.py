"""Benches: structures of one network, timed in turns with the whole network, each with the seconds of its pieces."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from aacp.channels import ChannelGraph
from aacp.graph.signature import with_batch
from aacp.graph.surgery import shrink
from aacp.latency.deployment import Deployment
from aacp.latency.onnx_pieces import OnnxPieces, draft_onnx
from aacp.latency.pieces import Piece, TimedStructure, Width
from aacp.latency.runtimes import on_device, onnx_session, torch_threads
from aacp.latency.torch_pieces import TorchPieces, is_convolution, is_layer, piece_kinds
from aacp.structure import Structure

QUANTILE = 0.1  # of the turns: others on the machine only ever make a run longer
QUIET = 0.015  # relative uncertainty; above it, turns are added
PATIENCE = 4
WARMUP = 2
LEAST_TURNS, MOST_TURNS = 7, 60


class TimedNetwork(Protocol):
    """A network that can be run as a whole, or with the time of its pieces noted."""

    def whole(self) -> None: ...

    def note(self) -> None: ...

    def notes(self) -> list[list[float]]: ...


class StructureTimer(Protocol):
    """What measures a structure: the seconds of the whole, of its pieces, and of the unpruned network meanwhile."""

    pieces: tuple[Piece, ...]

    def __call__(self, structure: Structure) -> TimedStructure: ...


class NetworkTimer:
    """Structures of a network, in torch or in ONNX Runtime."""

    def __init__(
        self,
        model: nn.Module,
        graph: ChannelGraph,
        example: Any,
        where: Deployment,
        seconds_per_structure: float = 1.0,
    ) -> None:
        self._model, self._graph, self._example = model, graph, with_batch(on_device(example, "cpu"), where.batch)
        self._runtime, self._device, self._threads = where.runtime, where.device, where.threads
        self._seconds = seconds_per_structure
        self._layers, kinds, only_convolutions = piece_kinds(
            model, on_device(self._example, model_device(model)), graph
        )
        self._begins = is_convolution if only_convolutions else is_layer
        self.pieces = pieces_of_graph(graph, self._layers, kinds)
        self._full: TimedNetwork | None = None
        self._file: bytes | None = None
        self._session: Any = None

    def __call__(self, structure: Structure) -> TimedStructure:
        with torch_threads(self._threads), tempfile.TemporaryDirectory(prefix="aacp-latency-") as folder:
            subject = self._subject(structure, Path(folder) / "structure.onnx")
            return time_in_turns(structure, subject, self._reference(Path(folder) / "full.onnx"), self._seconds)

    def _subject(self, structure: Structure, path: Path) -> TimedNetwork:
        network = shrink(self._model, self._graph, structure, example=self._example)
        if self._runtime == "torch":
            return TorchPieces(network, self._example, self._begins, self._device)
        draft_onnx(network, path, self._example)
        return self._in_onnx(path, structure)

    def _reference(self, path: Path) -> TimedNetwork:
        """The unpruned network; what it takes to make it is kept."""
        if self._runtime == "torch":
            self._full = self._full or self._subject(self._graph.full, path)
            return self._full
        if self._file is None:
            draft_onnx(self._model, path, self._example)
            self._file, self._session = path.read_bytes(), onnx_session(path, self._threads)
        path.write_bytes(self._file)
        return self._in_onnx(path, self._graph.full, self._session)

    def _in_onnx(self, path: Path, structure: Structure, session: Any = None) -> TimedNetwork:
        sizes = self._graph.lane_sizes(np.asarray(structure))
        widths = [0 if layer.output is None else int(sizes[layer.output]) for layer in self._layers]
        return OnnxPieces(path, self._example, self._layers, widths, self._threads, session)


def time_in_turns(
    structure: Structure,
    subject: TimedNetwork,
    reference: TimedNetwork,
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> TimedStructure:
    """A structure and the unpruned network in turns, for about so many seconds.

    What counts is the median of each turn's ratio: a machine that is slower for a while is slower for both. It stands
    against what the unpruned network takes when little else runs. A busy machine is given `PATIENCE` times as long.
    """
    calls = (reference.whole, subject.whole, reference.note, subject.note)
    for _ in range(WARMUP):
        once = sum(_timed(call, clock) for call in calls)
    batch = int(np.clip(math.ceil(seconds / max(once, 1e-9)), LEAST_TURNS, MOST_TURNS))
    turns: list[list[float]] = []
    while not turns or (noise_of(turns) > QUIET and len(turns) < PATIENCE * batch):
        turns += [[_timed(call, clock) for call in calls] for _ in range(batch)]
    seen = np.array(turns)
    noted, together = (np.array(it.notes()[-len(turns) :]) for it in (subject, reference))
    sums = together.sum(axis=1)
    whole_reference, pieces_reference = (float(np.quantile(level, QUANTILE)) for level in (seen[:, 0], sums))
    pieces = np.median(noted / sums[:, None], axis=0) * pieces_reference
    return TimedStructure(
        structure=tuple(structure),
        whole=float(np.median(seen[:, 1] / seen[:, 0])) * whole_reference,
        reference=whole_reference,
        pieces=tuple(pieces.tolist()),
        reference_pieces=pieces_reference,
        noise=noise_of(turns),
    )


def noise_of(turns: list[list[float]]) -> float:
    """How uncertain the ratio of the second column to the first is, relative to it."""
    lower, median, upper = np.quantile([turn[1] / turn[0] for turn in turns], [0.25, 0.5, 0.75])
    return float((upper - lower) / median / math.sqrt(len(turns)))


def _timed(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def pieces_of_graph(graph: ChannelGraph, layers: list[Any], kinds: list[str]) -> tuple[Piece, ...]:
    """Each piece with the lanes its time depends on: what goes in, what comes out, what the next layer reads."""
    followers = [layer.input for layer in layers[1:]] + [None]
    found = []
    for layer, kind, following in zip(layers, kinds, followers, strict=True):
        lanes = [lane for lane in (layer.input, layer.output, following, *layer.macs_lanes) if lane is not None]
        widths = [Width.of(graph, lane) for lane in dict.fromkeys(lanes)]
        free = tuple(width for width in dict.fromkeys(widths) if width.groups)
        found.append(Piece(layer.name, f"{layer.kind}: {kind}", tuple(layer.output_size), free))
    return tuple(found)


def model_device(model: nn.Module) -> str:
    return str(next((value.device for value in model.parameters()), torch.device("cpu")))
