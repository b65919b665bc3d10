"""The runtime ExecuTorch: the exported network on the CPU, with its convolutions and products in XNNPACK.

In int8, torchao's PT2E quantises programs statically for XNNPACK. Weights are signed and symmetric with a scale for
each output channel; activations are signed and asymmetric.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aacp.disk.reading import MAX_BYTES, read_bytes
from aacp.disk.writing import replace_file
from aacp.errors import InvalidOption
from aacp.graph.examples import FlatNetwork
from aacp.latency.runtimes.converted import ConvertedRuntime, OpenedFile, RunFile, silent
from aacp.latency.runtimes.int8 import Int8, require_single_precision
from aacp.pytorch.internals import quiet_export
from aacp.zoo.imports import require_package

INSTALL = "pip install 'aacp[executorch]'"
METHOD = "forward"  # the only method of a program


class ExecuTorch(ConvertedRuntime):
    """ExecuTorch with the delegate XNNPACK, as on phones; portable kernels run what XNNPACK cannot."""

    name = "executorch"
    title = "ExecuTorch"
    packages: tuple[str, ...] = ("executorch",)
    install = INSTALL
    suffix = ".pte"
    file_format = "ExecuTorch program for XNNPACK"

    @property
    def version(self) -> str:
        return str(require_package("executorch.version", INSTALL).__version__)

    def convert(self, network: FlatNetwork, tensors: tuple[Tensor, ...], path: Path) -> None:
        with quiet_export(), silent():
            exported = torch.export.export(network, tensors, strict=False)
            replace_file(path, _lowered(self.translated(exported, network, tensors)))

    def translated(self, program: Any, network: FlatNetwork, tensors: tuple[Tensor, ...]) -> Any:
        """Return an exported program in the precision of this runtime.

        Args:
            program: what `torch.export` returned.
            network: the network that was exported.
            tensors: the inputs that it was exported with.
        """
        return program

    def open_file(self, path: Path, threads: int) -> OpenedFile:
        return ExecuTorchFile(read_bytes(path, limit=MAX_BYTES), threads)

    def quantized(self, images: Sequence[Any] | None) -> ExecuTorchInt8:
        return ExecuTorchInt8(images)


class ExecuTorchInt8(Int8, ExecuTorch):
    """ExecuTorch with networks that torchao quantises statically for XNNPACK."""

    packages = (*ExecuTorch.packages, "torchao")
    suffix = ".int8.pte"
    file_format = "ExecuTorch program for XNNPACK in int8"

    def require_installed(self) -> None:
        with silent():  # torchao logs which of its kernels for GPUs cannot be loaded
            super().require_installed()

    def translated(self, program: Any, network: FlatNetwork, tensors: tuple[Tensor, ...]) -> Any:
        require_single_precision(network.network)
        inputs = self._calibration.tensors(network.network, tensors)
        return torch.export.export(quantize_program(program, inputs), tensors, strict=False)


def quantize_program(program: Any, inputs: Iterable[tuple[Tensor, ...]]) -> torch.fx.GraphModule:
    """Return an exported program as a module whose layers are quantised for XNNPACK; any exception may be raised.

    Args:
        program: what `torch.export` returned.
        inputs: batches of inputs, on which the ranges of activations are found.
    """
    xnnpack = require_package("executorch.backends.xnnpack.quantizer.xnnpack_quantizer", INSTALL)
    torchao = require_package("torchao.quantization.pt2e.quantize_pt2e", INSTALL)
    settings = xnnpack.get_symmetric_quantization_config(is_per_channel=True)
    quantizer = xnnpack.XNNPACKQuantizer().set_global(settings)
    # The patterns for training are left out: the quantiser exports every pattern in each call, which takes seconds.
    quantizer.SUPPORTED_PATTERNS = [pattern for pattern in quantizer.SUPPORTED_PATTERNS if not pattern.is_qat]
    prepared = torchao.prepare_pt2e(program.module(), quantizer)
    with torch.no_grad():
        for tensors in inputs:
            prepared(*tensors)
    quantized: torch.fx.GraphModule = torchao.convert_pt2e(prepared)
    if not any("quantize_per_channel" in str(node.target) for node in quantized.graph.nodes):
        raise InvalidOption("torchao quantises no layer of the network for XNNPACK. Use the precision float32.")
    return quantized


def _lowered(program: Any) -> bytes:
    """Return an exported program as the content of a file, in which XNNPACK runs all that it can."""
    lower = require_package("executorch.exir", INSTALL).to_edge_transform_and_lower
    xnnpack = require_package("executorch.backends.xnnpack.partition.xnnpack_partitioner", INSTALL)
    return bytes(lower(program, partitioner=[xnnpack.XnnpackPartitioner()]).to_executorch().buffer)


class ExecuTorchFile:
    """A program in memory.

    All programs of a process share one pool of threads. A program that was loaded before the pool was replaced must
    not run again, so it is loaded once more.
    """

    replaced_pools = 0  # how often the pool of this process was replaced

    def __init__(self, content: bytes, threads: int) -> None:
        self._content = content
        self._threads = threads
        self._load()

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        metadata = self._method.metadata
        return [metadata.input_tensor_meta(place).sizes() for place in range(metadata.num_inputs())]

    def bound_to(self, tensors: Sequence[Tensor]) -> RunFile:
        """Return a call that runs the program, and returns the outputs as tensors."""
        inputs = [tensor.detach().contiguous() for tensor in tensors]
        return lambda: self._run(inputs)

    def _run(self, inputs: list[Tensor]) -> Sequence[Any]:
        if self._pool != ExecuTorchFile.replaced_pools:
            self._load()
        outputs: Sequence[Any] = self._method.execute(inputs)
        return outputs

    def _load(self) -> None:
        with silent():
            runtime = require_package("executorch.runtime", INSTALL)
            pool = require_package("executorch.extension.pybindings.portable_lib", INSTALL)
        if pool._threadpool_get_thread_count() != self._threads:
            pool._unsafe_reset_threadpool(self._threads)
            ExecuTorchFile.replaced_pools += 1
        self._pool = ExecuTorchFile.replaced_pools
        self._program = runtime.Runtime.get().load_program(self._content)
        self._method = self._program.load_method(METHOD)
