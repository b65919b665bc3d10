"""Runtimes that run files: FileRuntime is the base class of all of them.

ConvertedRuntime is the base class of those whose files a converter writes; each file is compared with torch before it
appears. A subclass says how to convert a network and how to run a file; the rest of the interface follows from that.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from aacp.artefact.onnx_check import TOLERANCE, similar_inputs
from aacp.data.examples import tensors_in
from aacp.disk.failures import writing_errors
from aacp.disk.writing import move_files, temporary_folder
from aacp.errors import ExportFailed, InvalidOption, failing_as
from aacp.graph.examples import FlatNetwork
from aacp.latency.runtimes.agreement import largest_difference
from aacp.latency.runtimes.file_network import FileNetwork
from aacp.latency.runtimes.runtime import Runtime, RuntimeFile
from aacp.pytorch.internals import ONE_THREAD
from aacp.pytorch.modules import positional
from aacp.user.values import counted

RunFile = Callable[[], Sequence[Any]]  # runs one batch, and returns its outputs as arrays or tensors


class OpenedFile(Protocol):
    """A file that a runtime has read."""

    @property
    def shapes(self) -> Sequence[Sequence[int]]:
        """The shapes of the inputs that the file takes."""

    def bound_to(self, tensors: tuple[Tensor, ...]) -> RunFile:
        """Return a call that runs the file on these inputs."""


@dataclass(frozen=True)
class ConvertedFile:
    """A network in the format of a runtime, for one batch size, and how far its outputs are from torch's."""

    path: Path
    file_bytes: int  # together with the file of the weights, if there is one
    largest_difference: float


class FileRuntime(Runtime):
    """A runtime that runs files: a module is written to one first."""

    @abstractmethod
    def write(self, network: nn.Module, path: Path, example: Any) -> object:
        """Write a network as a file in the precision of this runtime; further files may appear beside it."""

    @abstractmethod
    def prepare_file(self, path: Path, example: Any, threads: int) -> RunFile:
        """Return a call that runs a file on a batch, whose tensors are in the order of the file's inputs."""

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> RunFile:
        if isinstance(network, Path):
            return self.prepare_file(network, example, threads)
        with tempfile.TemporaryDirectory(prefix="aacp-latency-") as folder:
            file = Path(folder) / f"network{self.suffix}"
            self.write(network, file, example)
            return self.prepare_file(file, positional(network, example), threads)


class ConvertedRuntime(FileRuntime):
    """A runtime that runs files which a converter writes.

    Attributes:
        tolerance: the largest accepted difference from torch, relative to the largest value of an output.
    """

    tolerance: float = TOLERANCE[torch.float32]

    @abstractmethod
    def convert(self, network: FlatNetwork, tensors: tuple[Tensor, ...], path: Path) -> None:
        """Write a network as a file, for inputs of the shapes of `tensors`; any exception may be raised."""

    @abstractmethod
    def open_file(self, path: Path, threads: int) -> OpenedFile:
        """Read a file that `convert` wrote; any exception may be raised."""

    def export(self, network: nn.Module, path: Path, example: Any) -> RuntimeFile:
        """Write a network for the batch size of the example.

        A file whose outputs differ from torch's by more than `tolerance` of their largest value is an error, and is
        not written.
        """
        with temporary_folder(path) as folder, writing_errors(path):
            draft = folder / path.name
            flat, tensors = self.write(network, draft, example)
            far = self._compare(draft, flat, tensors)
            size = move_files(folder, path)
        return ConvertedFile(path, size, far)

    def write(self, network: nn.Module, path: Path, example: Any) -> tuple[FlatNetwork, tuple[Tensor, ...]]:
        """Write a network as a file, and return it with its inputs, both as the file has them.

        ExportFailed is raised if the converter rejects the network.
        """
        self.require_installed()
        arguments = positional(network, example)
        flat = FlatNetwork(network, arguments)
        tensors = tensors_in(arguments)
        what = f"{type(network).__name__} cannot be converted for {self.title}"
        remedy = "Replace that part of the network, or use another runtime."
        with failing_as(ExportFailed, what, remedy), ONE_THREAD, warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            self.convert(flat, tensors, path)
        return flat, tensors

    def prepare_file(self, path: Path, example: Any, threads: int) -> RunFile:
        opened = self.opened(path, threads)
        tensors = tensors_in(example)
        require_inputs(opened.shapes, tensors)
        return opened.bound_to(tensors)

    def opened(self, path: Path, threads: int) -> OpenedFile:
        """Return a file that the runtime has read; ExportFailed if the runtime rejects it."""
        self.require_installed()
        with failing_as(ExportFailed, f"{self.title} cannot open {path.name}", "Export the network again."):
            return self.open_file(path, threads)

    def module_of(self, path: Path, original: nn.Module, example: Any) -> FileNetwork:
        opened = self.opened(path, torch.get_num_threads())
        return FileNetwork(lambda tensors: opened.bound_to(tensors)(), opened.shapes[0][0], original, example)

    def _compare(self, path: Path, network: FlatNetwork, tensors: tuple[Tensor, ...]) -> float:
        """Return the largest difference of a file from torch; ExportFailed above the tolerance."""
        inputs = similar_inputs(tensors)
        with torch.no_grad():
            expected = network(*inputs)
        found = [torch.as_tensor(output) for output in self.prepare_file(path, inputs, torch.get_num_threads())()]
        return largest_difference(
            expected, found, names=network.outputs, network=path.name, title=self.title, tolerance=self.tolerance
        )


@contextmanager
def silent() -> Iterator[None]:
    """Hide the messages of converters, such as those about optional packages that are not installed."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def require_inputs(shapes: Sequence[Sequence[int]], tensors: Sequence[Tensor]) -> None:
    """Reject an example that is not like the one that a file was written for.

    Args:
        shapes: the shapes of the inputs that the file takes.
        tensors: the tensors of the example.
    """
    if len(shapes) != len(tensors):
        raise InvalidOption(
            f"The exported network takes {counted(len(shapes), 'input')}, but the example holds "
            f"{counted(len(tensors), 'tensor')}. Give an example like the one it was exported with."
        )
    for shape, tensor in zip(shapes, tensors, strict=True):
        if tuple(shape) != tuple(tensor.shape):
            raise InvalidOption(
                f"The exported network takes an input of {_shown(shape)}, but the example has {_shown(tensor.shape)} "
                "there. Export the network again with this example, because a file of this runtime has one batch size."
            )


def _shown(shape: Sequence[int]) -> str:
    return "x".join(str(int(size)) for size in shape)
