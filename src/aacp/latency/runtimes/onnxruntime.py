"""The runtime ONNX Runtime: the exported network on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aacp.artefact.onnx import OPSET, export_onnx
from aacp.artefact.onnx_int8 import fixed_batch, quantize_file
from aacp.artefact.onnx_session import INSTALL, open_session, session_inputs
from aacp.errors import UntraceableModel
from aacp.latency.runtimes.converted import FileRuntime, RunFile
from aacp.latency.runtimes.file_network import FileNetwork
from aacp.latency.runtimes.int8 import Int8, require_single_precision
from aacp.latency.runtimes.onnx_pieces import OnnxPieces
from aacp.latency.runtimes.quick_onnx import export_quickly
from aacp.latency.runtimes.runtime import PiecesByMacs, PieceTimer, RuntimeFile, TimedLayer, log_division_by_macs
from aacp.zoo.imports import require_package


class OnnxRuntime(FileRuntime):
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

    def prepare_file(self, path: Path, example: Any, threads: int) -> RunFile:
        session = open_session(path, threads)
        inputs = session_inputs(session, example)
        return lambda: session.run(None, inputs)

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> PieceTimer:
        return OnnxPieces(network, example, layers, threads, export_quickly)

    def export(self, network: nn.Module, path: Path, example: Any) -> RuntimeFile:
        return export_onnx(network, path, example)

    def write(self, network: nn.Module, path: Path, example: Any) -> object:
        return export_onnx(network, path, example)

    def module_of(self, path: Path, original: nn.Module, example: Any) -> FileNetwork:
        session = open_session(path, torch.get_num_threads())
        return FileNetwork(
            lambda tensors: session.run(None, session_inputs(session, tensors)),
            fixed_batch(session),
            original,
            example,
        )

    def quantized(self, images: Sequence[Any] | None) -> OnnxInt8:
        return OnnxInt8(images)


class OnnxInt8(Int8, OnnxRuntime):
    """ONNX Runtime with networks that are quantised statically, as `quantize_file` does it."""

    suffix = ".int8.onnx"
    file_format = f"ONNX in int8, opset {OPSET}"

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> PieceTimer:
        pieces = OnnxPieces(network, example, layers, threads, partial(self.write, export=export_quickly))
        pieces.run_timed()
        try:
            pieces.take_recorded()
        except UntraceableModel as error:  # layers that ONNX Runtime merges or divides when it quantises them
            log_division_by_macs(f"{type(network).__name__} in int8", str(error).partition(". ")[0])
            return PiecesByMacs(pieces.run, layers, self.clock)
        return pieces

    def write(self, network: nn.Module, path: Path, example: Any, export: Callable[..., object] = export_onnx) -> None:
        """Write a network in int8, from the float file that `export` writes: by default the one that is delivered."""
        require_single_precision(network)
        with tempfile.TemporaryDirectory(prefix="aacp-int8-") as folder:
            source = Path(folder) / "float.onnx"
            export(network, source, example)
            quantize_file(source, path, self._calibration.arguments(network, example))
