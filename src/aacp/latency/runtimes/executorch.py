"""The runtime ExecuTorch: the exported network on the CPU, with its convolutions and products in XNNPACK."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aacp.disk.reading import MAX_BYTES, read_bytes
from aacp.disk.writing import replace_file
from aacp.graph.examples import FlatNetwork
from aacp.latency.runtimes.converted import ConvertedRuntime, RunFile, require_inputs
from aacp.torch_internals import quiet_export
from aacp.zoo.imports import require_package

INSTALL = "pip install 'aacp[executorch]'"
METHOD = "forward"  # the only method of a program


class ExecuTorch(ConvertedRuntime):
    """ExecuTorch with the delegate XNNPACK, as on phones; what XNNPACK cannot run is left to portable kernels."""

    name = "executorch"
    title = "ExecuTorch"
    packages = ("executorch",)
    install = INSTALL
    suffix = ".pte"
    file_format = "ExecuTorch program for XNNPACK"

    @property
    def version(self) -> str:
        return str(require_package("executorch.version", INSTALL).__version__)

    def convert(self, network: FlatNetwork, tensors: tuple[Tensor, ...], path: Path) -> None:
        with quiet_export(), _silent():
            lower = require_package("executorch.exir", INSTALL).to_edge_transform_and_lower
            xnnpack = require_package("executorch.backends.xnnpack.partition.xnnpack_partitioner", INSTALL)
            exported = torch.export.export(network, tensors, strict=False)
            program = lower(exported, partitioner=[xnnpack.XnnpackPartitioner()]).to_executorch()
        replace_file(path, bytes(program.buffer))

    def load(self, path: Path, tensors: tuple[Tensor, ...], threads: int) -> RunFile:
        program = _Program(read_bytes(path, limit=MAX_BYTES), tensors, threads)
        return program.run


class _Program:
    """A program with its inputs.

    All programs of a process share one pool of threads. A program that was loaded before the pool was replaced must
    not run again, and is loaded once more.
    """

    pools = 0  # how often the pool of this process was replaced

    def __init__(self, content: bytes, tensors: Sequence[Tensor], threads: int) -> None:
        self._content = content
        self._inputs = [tensor.detach().contiguous() for tensor in tensors]
        self._threads = threads
        self._load()
        taken = self._method.metadata
        sizes = [taken.input_tensor_meta(place).sizes() for place in range(taken.num_inputs())]
        require_inputs(sizes, tensors)

    def run(self) -> Sequence[Any]:
        """Run one batch, and return the outputs as tensors."""
        if self._pool != _Program.pools:
            self._load()
        outputs: Sequence[Any] = self._method.execute(self._inputs)
        return outputs

    def _load(self) -> None:
        with _silent():
            runtime = require_package("executorch.runtime", INSTALL)
            pool = require_package("executorch.extension.pybindings.portable_lib", INSTALL)
        if pool._threadpool_get_thread_count() != self._threads:
            pool._unsafe_reset_threadpool(self._threads)
            _Program.pools += 1
        self._pool = _Program.pools
        self._program = runtime.Runtime.get().load_program(self._content)
        self._method = self._program.load_method(METHOD)


@contextmanager
def _silent() -> Iterator[None]:
    """Hide the messages about optional parts of packages that are not there."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
