"""The pieces of a network in ONNX Runtime, found in the profile that it writes.

ONNX Runtime fuses and reorders operators. A convolution or product begins a piece, and everything that follows up to
the next one (including conversions between memory layouts) belongs to it. A quantised network has operators of other
names there, mostly with the channels last.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

from torch import nn

from aacp.artefact.onnx_session import open_session, session_inputs
from aacp.disk.reading import MAX_BYTES, read_json
from aacp.disk.writing import remove_file
from aacp.errors import UntraceableModel
from aacp.latency.layers import matched, piece_numbers
from aacp.latency.runtimes.runtime import TimedLayer
from aacp.pytorch.modules import positional

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


class OnnxPieces:
    """Times the pieces of a network by the profile that ONNX Runtime writes.

    Args:
        network: a module in evaluation mode on the CPU.
        example: one batch of inputs.
        layers: the layers that begin a piece.
        threads: how many CPU threads an operator may use.
        write: writes the module as an .onnx file.
    """

    def __init__(
        self,
        network: nn.Module,
        example: Any,
        layers: Sequence[TimedLayer],
        threads: int,
        write: Callable[[nn.Module, Path, Any], None],
    ) -> None:
        self._layers = layers
        self._threads = threads
        self._folder = Path(tempfile.mkdtemp(prefix="aacp-latency-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._file = self._folder / "network.onnx"
        write(network, self._file, example)
        self._session = open_session(self._file, threads)
        self._profiled: Any = None
        self._inputs = session_inputs(self._session, positional(network, example))

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
    begins = [operator["args"]["op_name"] in beginnings for operator in operators]
    first_operators = list(compress(operators, begins))
    if len(first_operators) != len(layers):
        raise UntraceableModel(
            f"ONNX Runtime runs {len(first_operators)} layers, but the graph has {len(layers)}: its pieces cannot be "
            "identified. Use the runtime torch, or a limit on macs instead of latency."
        )
    # Time between operators is not counted: it is mostly the cost of profiling. The calibration accounts for the rest.
    seconds = [0.0] * len(first_operators)
    for number, operator in zip(piece_numbers(begins), operators, strict=True):
        seconds[number] += 1e-6 * float(operator["dur"])
    return [seconds[place] for place in matched(layers, first_operators, _is_output_of)]


def _is_output_of(layer: TimedLayer, operator: dict[str, Any]) -> bool:
    """Whether the output of an operator has the height, width and channels of a layer's."""
    _, *shape = next(iter(operator["args"]["output_type_shape"][0].values()))
    size = list(layer.output_size)
    if operator["args"]["op_name"] in CHANNELS_LAST:
        return shape in ([layer.output_channels, *size], [*size, layer.output_channels])
    channels = shape[0] if shape else 0
    return shape[1:] == size and _blocks(channels) == _blocks(layer.output_channels)


def _blocks(channels: int) -> int:
    return -(-channels // CHANNEL_BLOCK)
