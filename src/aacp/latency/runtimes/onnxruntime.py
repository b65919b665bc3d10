"""The runtime ONNX Runtime: the exported network on the CPU.

ONNX Runtime fuses and reorders operators, so that the pieces of a network are found in its own profile: a convolution
or product begins a piece, and everything that follows up to the next one (including conversions between memory layouts)
belongs to it. A quantised network has operators of other names there, mostly with the channels last.
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

from aacp.artefact.onnx import OPSET, export_onnx
from aacp.artefact.onnx_int8 import quantize_file
from aacp.artefact.onnx_network import OnnxNetwork
from aacp.artefact.onnx_session import INSTALL, open_session, session_inputs
from aacp.data.batches import Batches
from aacp.data.examples import call
from aacp.data.likeness import Likeness
from aacp.disk.reading import MAX_BYTES, read_json
from aacp.disk.writing import move_file, remove_file, temporary_folder
from aacp.errors import AACPError, ExportFailed, InvalidData, InvalidOption, UntraceableModel, first_line
from aacp.graph.examples import FlatNetwork, tensors_in
from aacp.latency.runtimes.runtime import (
    INT8,
    PiecesByMacs,
    PieceTimer,
    QuantizedFile,
    Runtime,
    RuntimeFile,
    TimedLayer,
)
from aacp.modules import copy_module, positional
from aacp.zoo.imports import require_package

# The operators that begin a piece, by their names in a profile.
CONVOLUTIONS = {"Conv", "FusedConv", "NhwcFusedConv", "ConvTranspose", "QLinearConv"}
PRODUCTS = {
    "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "MatMulScaleBias", "Einsum", "TransposeMatMul",
    "QGemm", "QLinearMatMul", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul",
}  # fmt: skip
# ONNX Runtime pads channels to multiples of 8 or 16, and its profile shows the padded shapes. Two numbers of channels
# are taken to be the same if they are equal when rounded up to this multiple.
CHANNEL_BLOCK = 16
# Operators that may have the channels last, whatever the order in the file, and that do not pad them.
CHANNELS_LAST = {"QLinearConv", "NhwcFusedConv"}
COMPARED_BATCHES = 4  # batches of calibration inputs on which a quantised file is compared with torch

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
    ) -> PieceTimer:
        return OnnxPieces(network, example, layers, threads)

    def export(self, network: nn.Module, path: Path, example: Any) -> RuntimeFile:
        return export_onnx(network, path, example)

    def module_of(self, path: Path, original: nn.Module, example: Any) -> OnnxNetwork:
        return OnnxNetwork(path, original, example, torch.get_num_threads())

    def quantized(self, images: Sequence[Any] | None) -> OnnxInt8:
        return OnnxInt8(images)


class OnnxInt8(OnnxRuntime):
    """ONNX Runtime with networks that are quantised statically, as `quantize_file` does it.

    Args:
        images: batches of inputs that the ranges of activations are found on; None uses the example of each call.
    """

    suffix = ".int8.onnx"
    file_format = f"ONNX in int8, opset {OPSET}"

    def __init__(self, images: Sequence[Any] | None) -> None:
        if images is not None and not len(images):
            raise InvalidOption(
                "There are no inputs to find the ranges of activations on, which int8 needs. Give at least one batch, "
                "or use the precision float32."
            )
        self._images = images

    def precision(self, network: nn.Module) -> str:
        return INT8

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        if isinstance(network, Path):
            return super().prepare(network, example, device=device, threads=threads)
        with tempfile.TemporaryDirectory(prefix="aacp-latency-") as folder:
            file = Path(folder) / "network.int8.onnx"
            self._write(network, file, example)
            return super().prepare(file, example, device=device, threads=threads)

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> PieceTimer:
        pieces = OnnxPieces(network, example, layers, threads, self._write_quickly)
        pieces.run_timed()
        try:
            pieces.take_recorded()
        except UntraceableModel as error:  # layers that ONNX Runtime merges or divides when it quantises them
            _log_division_by_macs(type(network).__name__, str(error).partition(". ")[0])
            return PiecesByMacs(pieces.run, [layer.macs for layer in layers], self.clock)
        return pieces

    def export(self, network: nn.Module, path: Path, example: Any) -> QuantizedFile:
        with temporary_folder(path) as folder:
            draft = folder / path.name
            self._write(network, draft, example)
            likeness, difference = self._compared(network, draft, example)
            move_file(draft, path)
        return QuantizedFile(path, path.stat().st_size, difference, likeness)

    def _write(self, network: nn.Module, path: Path, example: Any) -> None:
        """Write a module in int8, from the same float file that would be delivered."""
        _require_single_precision(network)
        source = path.with_name("float.onnx")
        export_onnx(network, source, example, check=False)
        quantize_file(source, path, self._inputs(example))
        remove_file(source)

    def _write_quickly(self, network: nn.Module, path: Path, example: Any) -> None:
        """Write a module in int8 for timing only."""
        _require_single_precision(network)
        source = path.with_name("float.onnx")
        export_quickly(network, source, example)
        quantize_file(source, path, self._inputs(example))
        remove_file(source)

    def _inputs(self, example: Any) -> Sequence[Any]:
        return [example] if self._images is None else self._images

    def _compared(self, network: nn.Module, path: Path, example: Any) -> tuple[float | None, float]:
        """Return the likeness of a file's outputs to torch's, and their largest difference.

        No tolerance is applied: rounding to 8 bits changes outputs. What is required is that the outputs depend on
        nothing but the inputs.
        """
        images = self._inputs(example)[:COMPARED_BATCHES]
        first = self.module_of(path, network, example)
        _require_repeatable(first, self.module_of(path, network, example), images[0], path)
        largest = max(_largest_difference(network, first, inputs) for inputs in images)
        try:
            likeness = Likeness(network)(first, Batches([(inputs, None) for inputs in images]))
        except InvalidData:  # constant outputs, which no likeness can be computed for
            return None, largest
        return likeness, largest


def _require_single_precision(network: nn.Module) -> None:
    kinds = {value.dtype for value in network.parameters() if value.is_floating_point()} - {torch.float32}
    if kinds:
        names = " and ".join(sorted(str(kind).removeprefix("torch.") for kind in kinds))
        raise InvalidOption(
            f"Weights of {type(network).__name__} are {names}, but only float32 can be quantised to int8. Convert the "
            "network with .float(), or use the precision float32, which runs it as it is."
        )


@torch.no_grad()
def _require_repeatable(one: OnnxNetwork, other: OnnxNetwork, inputs: Any, path: Path) -> None:
    """Reject a file whose outputs differ between two calls, or between two sessions."""
    first = tensors_in(call(one, inputs))
    for network in (one, other):
        for before, now in zip(first, tensors_in(call(network, inputs)), strict=True):
            if not torch.equal(before.nan_to_num(), now.nan_to_num()):
                raise ExportFailed(
                    f"{path.name} returns other outputs for the same inputs in another call. Use the precision "
                    "float32, and report this network to us."
                )


@torch.no_grad()
def _largest_difference(network: nn.Module, quantized: OnnxNetwork, inputs: Any) -> float:
    pairs = zip(tensors_in(call(network, inputs)), tensors_in(call(quantized, inputs)), strict=True)
    return max(float((one.double() - other.double()).abs().max()) for one, other in pairs if one.numel())


@cache
def _log_division_by_macs(network: str, reason: str) -> None:
    """Log once for each network and reason that the pieces of a table are estimated."""
    _logger.warning(
        "%s in int8: %s. Its time is divided among the layers in proportion to their MACs, which makes the table less "
        "accurate.",
        network,
        reason,
    )


class OnnxPieces:
    """Times the pieces of a network by the profile that ONNX Runtime writes.

    Args:
        network: a module in evaluation mode on the CPU.
        example: one batch of inputs.
        layers: the layers that begin a piece.
        threads: how many CPU threads an operator may use.
        write: writes the module as a file; None is `export_quickly`.
    """

    def __init__(
        self,
        network: nn.Module,
        example: Any,
        layers: Sequence[TimedLayer],
        threads: int = 1,
        write: Callable[[nn.Module, Path, Any], None] | None = None,
    ) -> None:
        self._layers = layers
        self._threads = threads
        self._folder = Path(tempfile.mkdtemp(prefix="aacp-latency-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._file = self._folder / "network.onnx"
        (write or export_quickly)(network, self._file, example)
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
    left = dict(enumerate(operators))
    found = []
    for layer in layers:
        place = next((place for place, operator in left.items() if _is_output_of(operator, layer)), next(iter(left)))
        found.append(place)
        del left[place]
    return found


def _is_output_of(operator: dict[str, Any], layer: TimedLayer) -> bool:
    """Whether the output of an operator has the height, width and channels of a layer's."""
    _, *shape = next(iter(operator["args"]["output_type_shape"][0].values()))
    size = list(layer.output_size)
    if operator["args"]["op_name"] in CHANNELS_LAST:
        return shape in ([layer.output_channels, *size], [*size, layer.output_channels])
    channels = shape[0] if shape else 0
    return shape[1:] == size and _blocks(channels) == _blocks(layer.output_channels)


def _blocks(channels: int) -> int:
    return -(-channels // CHANNEL_BLOCK)
