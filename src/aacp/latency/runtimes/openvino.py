"""The runtime OpenVINO: the exported network on the CPU.

The network is converted through ONNX. OpenVINO's own converter for torch is not used, because it reports every use to
Intel unless the user has forbidden that.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from aacp.artefact.onnx import export_onnx
from aacp.data.examples import tensors_in
from aacp.graph.examples import FlatNetwork
from aacp.latency.runtimes.converted import ConvertedRuntime, OpenedFile
from aacp.latency.runtimes.int8 import Int8, require_single_precision
from aacp.latency.runtimes.nncf_int8 import INSTALL as INSTALL_INT8
from aacp.latency.runtimes.nncf_int8 import import_nncf, quantize_model
from aacp.latency.runtimes.openvino_files import INSTALL, OpenVinoFile, read_model, save_model
from aacp.latency.runtimes.openvino_pieces import OpenVinoPieces
from aacp.latency.runtimes.quick_onnx import export_quickly
from aacp.latency.runtimes.runtime import PiecesByMacs, PieceTimer, TimedLayer, log_division_by_macs
from aacp.pytorch.modules import positional
from aacp.zoo.imports import require_package


class OpenVino(ConvertedRuntime):
    """OpenVINO with its plugin for CPUs, in float32, tuned for the latency of one request at a time."""

    name = "openvino"
    title = "OpenVINO"
    packages: tuple[str, ...] = ("onnx", "onnxscript", "openvino")
    install = INSTALL
    suffix = ".xml"
    file_format = "OpenVINO IR, weights in the .bin file beside it"

    @property
    def version(self) -> str:
        return str(require_package("openvino", INSTALL).__version__).partition("-")[0]

    def precision(self, network: nn.Module) -> str:
        return "float32"  # the plugin for CPUs is set to compute in it, whatever the types of the weights

    def convert(self, network: FlatNetwork, tensors: tuple[Tensor, ...], path: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="aacp-openvino-") as folder:
            source = Path(folder) / "network.onnx"
            export_onnx(network, source, tensors, dynamic_batch=False, check=False)
            save_model(self.model_of(source, network.network, tensors), path)

    def model_of(self, source: Path, network: nn.Module, tensors: tuple[Tensor, ...]) -> Any:
        """Return an ONNX file as a model of OpenVINO, in the precision of this runtime.

        Args:
            source: the file.
            network: the network that the file was exported from.
            tensors: the inputs that it was exported with.
        """
        return read_model(source)

    def open_file(self, path: Path, threads: int) -> OpenedFile:
        return OpenVinoFile(path, threads)

    def quantized(self, images: Sequence[Any] | None) -> OpenVinoInt8:
        return OpenVinoInt8(images)

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> PieceTimer:
        self.require_installed()
        tensors = tensors_in(positional(network, example))
        with tempfile.TemporaryDirectory(prefix="aacp-openvino-") as folder:
            source = Path(folder) / "network.onnx"
            export_quickly(network, source, example)
            file = Path(folder) / "network.xml"
            save_model(self.model_of(source, network, tensors), file)
            timer = OpenVinoPieces(file, tensors, layers, threads, self.clock)
        if timer.places is not None:
            return timer
        log_division_by_macs(type(network).__name__, "OpenVINO has fused layers, which cannot be timed one by one")
        return PiecesByMacs(timer.run, layers, self.clock)


class OpenVinoInt8(Int8, OpenVino):
    """OpenVINO with networks that NNCF quantises statically."""

    packages = (*OpenVino.packages, "onnxruntime")
    install = INSTALL_INT8
    suffix = ".int8.xml"
    file_format = "OpenVINO IR in int8, weights in the .bin file beside it"

    def require_installed(self) -> None:
        super().require_installed()
        import_nncf()

    def model_of(self, source: Path, network: nn.Module, tensors: tuple[Tensor, ...]) -> Any:
        require_single_precision(network)
        return quantize_model(read_model(source), list(self._calibration.tensors(network, tensors)))
