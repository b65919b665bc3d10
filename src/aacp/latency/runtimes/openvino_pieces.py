"""The pieces of a network in OpenVINO, timed by the counters of its operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from aacp.latency.layers import matched, piece_numbers
from aacp.latency.runtimes.openvino_files import OpenVinoFile, arrays_of, compiled
from aacp.latency.runtimes.runtime import TimedLayer

# The operators that begin a piece, by their types in the graph that OpenVINO executes.
CONVOLUTIONS = {"Convolution", "Deconvolution"}
PRODUCTS = {"FullyConnected", "MatMul"}
# OpenVINO counts whole microseconds, rounded down: an operator takes half a microsecond more on average.
ROUNDED_OFF = 0.5e-6
# A profiled run that takes longer than this many times the median was interrupted by other work.
INTERRUPTED = 1.5


@dataclass(frozen=True)
class Operator:
    """An operator of the graph that OpenVINO executes."""

    name: str
    kind: str
    order: int  # its place in the order of execution
    output: tuple[int, ...]  # the shape of its first output


class OpenVinoPieces:
    """Times the pieces of a network by the counters of its operators.

    A counter is the mean of an operator's time in all runs so far, in whole microseconds. The time of a single run
    cannot be computed from it, but sums of many runs can. So the seconds of the pieces are means over the runs that
    were not interrupted, scaled in each run by the time that the whole run took.

    Args:
        file: the network as an .xml file, which may be removed afterwards.
        tensors: one batch of inputs.
        layers: the layers that begin a piece.
        threads: how many CPU threads the network may use.
        clock: the current time in seconds.

    Attributes:
        places: for each operator the position of its piece among the layers; None if OpenVINO has fused layers, so
            that pieces cannot be identified.
    """

    def __init__(
        self,
        file: Path,
        tensors: Sequence[Tensor],
        layers: Sequence[TimedLayer],
        threads: int,
        clock: Callable[[], float],
    ) -> None:
        self.run = OpenVinoFile(file, threads).bound_to(tensors)
        profiled = compiled(file, threads, profile=True)
        self._request = profiled.create_infer_request()
        self._inputs = arrays_of(tensors)
        self._operators = executed_operators(profiled)
        self._layers = layers
        self._clock = clock
        self.places = pieces_of_operators(self._operators, layers)
        self._runs = 0
        self._seconds: list[float] = []
        self._totals: list[list[float]] = []
        self._run_profiled()  # the first run allocates memory and takes longer than all others
        self._totals = [self._counted()]

    def run_timed(self) -> None:
        """Run one batch in a network that counts the time of its operators."""
        start = self._clock()
        self._run_profiled()
        self._seconds.append(self._clock() - start)
        self._totals.append(self._counted())

    def take_recorded(self) -> list[list[float]]:
        """Return the seconds of each piece in each timed run since the last call of this method."""
        if not self._seconds or self.places is None:
            return []
        seconds = np.array(self._seconds)
        operators = mean_of_runs(seconds, np.diff(self._totals, axis=0)) + ROUNDED_OFF
        pieces = np.bincount(self.places, weights=operators, minlength=len(self._layers))
        self._seconds = []
        self._totals = self._totals[-1:]
        recorded: list[list[float]] = np.outer(seconds / np.median(seconds), pieces).tolist()
        return recorded

    def _run_profiled(self) -> None:
        self._request.infer(self._inputs, share_inputs=True)
        self._runs += 1

    def _counted(self) -> list[float]:
        """Return the seconds of each operator in all runs so far."""
        means = {entry.node_name: entry.real_time.total_seconds() for entry in self._request.get_profiling_info()}
        return [self._runs * means.get(operator.name, 0.0) for operator in self._operators]


def mean_of_runs(seconds: Any, operators: Any) -> Any:
    """Return the mean seconds of each operator over the runs that were not interrupted.

    Args:
        seconds: the time of each run.
        operators: the time of each operator, one row for each run.
    """
    undisturbed = seconds <= INTERRUPTED * np.median(seconds)
    return operators[undisturbed].mean(axis=0).clip(min=0.0)


def executed_operators(compiled: Any) -> list[Operator]:
    """Return the operators of a compiled network that take time, in the order of execution."""
    found = []
    for node in compiled.get_runtime_model().get_ordered_ops():
        kind = _information(node, "layerType")
        if kind in ("Const", "Input", "Output") or not node.get_output_size():
            continue
        shape = tuple(int(size) for size in node.get_output_shape(0))
        order = int(_information(node, "execOrder"))
        found.append(Operator(node.get_friendly_name(), kind, order, shape))
    return sorted(found, key=lambda operator: operator.order)


def _information(node: Any, key: str) -> str:
    return str(node.get_rt_info()[key].astype(str))


def pieces_of_operators(operators: Sequence[Operator], layers: Sequence[TimedLayer]) -> list[int] | None:
    """Return for each operator the position of its piece among the layers; None if the layers are not all found.

    A convolution or product begins a piece. Operators that run between it and the next one belong to this piece.
    """
    only_convolutions = all(layer.is_convolution for layer in layers)
    beginnings = CONVOLUTIONS if only_convolutions else CONVOLUTIONS | PRODUCTS
    begins = [operator.kind in beginnings for operator in operators]
    first_operators = list(compress(operators, begins))
    if len(first_operators) != len(layers):
        return None
    layer_of = matched(first_operators, layers, _is_output)
    return [layer_of[number] for number in piece_numbers(begins)]


def _is_output(operator: Operator, layer: TimedLayer) -> bool:
    """Whether the output of an operator has the channels, height and width of a layer's."""
    if not layer.is_convolution:
        return len(operator.output) < 4 and operator.output[-1] == layer.output_channels
    return operator.output[1:] == (layer.output_channels, *layer.output_size)
