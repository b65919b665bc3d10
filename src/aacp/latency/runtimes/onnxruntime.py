"""The runtime ONNX Runtime: the exported network on the CPU.

ONNX Runtime fuses and reorders operators, so that the pieces of a network are found in its own profile: a convolution
or product begins a piece, and everything that follows up to the next one (including conversions between memory layouts)
belongs to it.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aacp.artefact.onnx import OPSET, OnnxFile, export_onnx
from aacp.artefact.onnx_session import INSTALL, open_session, session_inputs
from aacp.disk.reading import MAX_BYTES, read_json
from aacp.disk.writing import remove_file
from aacp.errors import AACPError, UntraceableModel, first_line
from aacp.graph.examples import FlatNetwork, tensors_in
from aacp.latency.runtimes.runtime import Runtime, TimedLayer
from aacp.modules import copy_module, positional
from aacp.zoo.imports import require_package

# The operators that begin a piece, by their names in a profile.
CONVOLUTIONS = {"Conv", "FusedConv", "NhwcFusedConv", "ConvTranspose"}
PRODUCTS = {"Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulScaleBias", "Einsum", "TransposeMatMul"}
# ONNX Runtime pads channels to multiples of 8 or 16, and its profile shows the padded shapes. Two numbers of channels
# are taken to be the same if they are equal when rounded up to this multiple.
CHANNEL_BLOCK = 16

_logger = logging.getLogger("aacp")


class OnnxRuntime(Runtime):
    """ONNX Runtime with its CPU execution provider."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    packages = ("onnx", "onnxscript", "onnxruntime")
    install = INSTALL
    suffix = ".onnx"
    file_format = f"ONNX, opset {OPSET}"

    @property
    def version(self) -> str:
        return str(require_package("onnxruntime", INSTALL).__version__)

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        if isinstance(network, nn.Module):
            with tempfile.TemporaryDirectory(prefix="aacp-latency-") as folder:
                file = export_onnx(network, Path(folder) / "network.onnx", example, check=False).path
                return self.prepare(file, example, device=device, threads=threads)
        session = open_session(network, threads)
        inputs = session_inputs(session, example)
        return lambda: session.run(None, inputs)

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> OnnxPieces:
        return OnnxPieces(network, example, layers, threads)

    def export(self, network: nn.Module, path: Path, example: Any) -> OnnxFile:
        return export_onnx(network, path, example)


class OnnxPieces:
    """Times the pieces of a network by the profile that ONNX Runtime writes."""

    def __init__(self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], threads: int = 1) -> None:
        self._layers = layers
        self._threads = threads
        self._folder = Path(tempfile.mkdtemp(prefix="aacp-latency-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._file = self._folder / "network.onnx"
        export_quickly(network, self._file, example)
        self._session = open_session(self._file, threads)
        self._profiled: Any = None
        self._inputs = session_inputs(self._session, example)

    def run(self) -> object:
        """Run one batch as a user would."""
        return self._session.run(None, self._inputs)

    def run_timed(self) -> None:
        """Run one batch in a session that writes a profile."""
        if self._profiled is None:
            self._profiled = open_session(self._file, self._threads, profile=self._folder / "profile")
        self._profiled.run(None, self._inputs)

    def take_recorded(self) -> list[list[float]]:
        """Return the seconds of each piece in each timed run since the last call of this method."""
        if self._profiled is None:
            return []
        profile = Path(self._profiled.end_profiling())  # a session writes one profile: the next run opens another
        self._profiled = None
        events = read_json(profile, limit=MAX_BYTES)
        remove_file(profile)
        return [piece_seconds(run, self._layers) for run in runs_in(events)]


def export_quickly(network: nn.Module, path: Path, example: Any) -> None:
    """Write a network as ONNX for timing only: the operators are those of `export_onnx`, which takes ten times longer.

    It uses torch's older, deprecated exporter. If that fails or no longer exists, `export_onnx` is used.
    """
    require_package("onnx", INSTALL)
    arguments = positional(network, example)
    flat = FlatNetwork(copy_module(network).cpu().eval(), arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(flat, tensors_in(arguments), os.fspath(path), dynamo=False, opset_version=OPSET)
    except AACPError:
        raise
    except Exception as error:  # whatever the older exporter raises
        _log_slow_export(type(network).__name__, first_line(error))
        export_onnx(network, path, example, dynamic_batch=False, check=False)


@cache
def _log_slow_export(network: str, reason: str) -> None:
    """Log once for each network and reason that every structure takes longer to export."""
    _logger.warning(
        "torch's older ONNX exporter cannot export %s (%s). The newer one is used: measuring takes about ten seconds "
        "longer for each structure.",
        network,
        reason,
    )


# -- reading a profile ------------------------------------------------------------------------------------------------


def runs_in(events: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the operators of each run in a profile, in the order in which they began."""
    operators: list[dict[str, Any]] = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            operators.append(event)
        elif event.get("name") == "model_run":  # it is written when a run ends
            yield sorted(operators, key=lambda operator: float(operator["ts"]))
            operators = []


def piece_seconds(operators: Sequence[dict[str, Any]], layers: Sequence[TimedLayer]) -> list[float]:
    """Return the seconds of each piece of a run, in the order of the layers."""
    only_convolutions = all(layer.is_convolution for layer in layers)
    beginnings = CONVOLUTIONS if only_convolutions else CONVOLUTIONS | PRODUCTS
    first_operators = [operator for operator in operators if operator["args"]["op_name"] in beginnings]
    if len(first_operators) != len(layers):
        raise UntraceableModel(
            f"ONNX Runtime runs {len(first_operators)} layers, but the graph has {len(layers)}: its pieces cannot be "
            "identified. Use the runtime torch, or a limit on macs instead of latency."
        )
    # Time between operators is not counted: it is mostly the cost of profiling. The calibration accounts for the rest.
    seconds = [0.0] * len(first_operators)
    place = -1
    for operator in operators:
        place += operator["args"]["op_name"] in beginnings
        seconds[max(0, place)] += 1e-6 * float(operator["dur"])
    return [seconds[place] for place in _places(first_operators, layers)]


def _places(operators: Sequence[dict[str, Any]], layers: Sequence[TimedLayer]) -> list[int]:
    """Return for each layer the first operator with an output of its size that no earlier layer took.

    ONNX Runtime may run parallel branches in another order than torch.
    """
    left = {place: _output_of(operator) for place, operator in enumerate(operators)}
    found = []
    for layer in layers:
        wanted = (layer.output_size, _blocks(layer.output_channels))
        place = next((place for place, output in left.items() if output == wanted), next(iter(left)))
        found.append(place)
        del left[place]
    return found


def _output_of(operator: dict[str, Any]) -> tuple[tuple[int, ...], int]:
    """Return the height and width of an operator's output, and its channels in blocks."""
    shape = next(iter(operator["args"]["output_type_shape"][0].values()))
    return tuple(shape[2:]), _blocks(shape[1] if len(shape) > 1 else 0)


def _blocks(channels: int) -> int:
    return -(-channels // CHANNEL_BLOCK)
