"""Runtime: the interface between latency measurements and a program that executes networks.

A subclass needs a `name`, a `version` and `prepare`. Everything else has a default.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from aacp.errors import InvalidOption, MissingPackage
from aacp.zoo.imports import require_package

INT8 = "int8"  # the precision of quantised networks

_logger = logging.getLogger("aacp")


@dataclass(frozen=True)
class TimedLayer:
    """A layer of a network whose structure is fixed: the first operator of a piece."""

    name: str
    is_convolution: bool  # otherwise a linear layer or a matrix product
    output_size: tuple[int, ...]  # height and width; empty for a linear layer
    output_channels: int  # 0 if they are unknown
    macs: int  # the MACs for one input


class PieceTimer(Protocol):
    """A prepared network that runs one batch, with or without recording the seconds of its pieces.

    A piece is a layer and everything that runs after it up to the next layer.
    """

    def run(self) -> object:
        """Run one batch as a user would, and wait for its end."""

    def run_timed(self) -> None:
        """Run one batch and record the seconds of each piece."""

    def take_recorded(self) -> list[list[float]]:
        """Return the seconds of each piece in each timed run since the last call of this method."""


class RuntimeFile(Protocol):
    """A network in the file format of a runtime."""

    @property
    def path(self) -> Path: ...

    @property
    def file_bytes(self) -> int: ...

    @property
    def largest_difference(self) -> float | None:
        """The largest difference of an output from torch's; None if it was not compared."""


@dataclass(frozen=True)
class QuantizedFile:
    """A network in int8 as a file, compared with torch in float."""

    path: Path
    file_bytes: int
    largest_difference: float
    likeness: float | None  # of the outputs to those of torch, 1 is equal (`Likeness`); None if they are constant


class Runtime(ABC):
    """A program that executes networks, and the way to time a network in it.

    Attributes:
        name: how the command line, latency tables and run folders refer to the runtime.
        version: its version; a latency table holds for one version only.
        title: its name in the report; by default `name`.
        packages: the Python packages it imports.
        install: the command that installs these packages, for error messages.
        devices: the kinds of devices it runs on: "cpu", "cuda", or names that only this runtime knows.
        suffix: the ending of the files it runs, such as ".onnx"; None if it runs the torch module itself.
        file_format: a few words about these files for the report, such as "ONNX, opset 18".
        largest_batch: the largest number of inputs that it processes at once; None if there is no limit.
    """

    name: str
    title: str = ""
    packages: tuple[str, ...] = ()
    install: str = ""
    devices: tuple[str, ...] = ("cpu",)
    suffix: str | None = None
    file_format: str = ""
    largest_batch: int | None = None

    @property
    @abstractmethod
    def version(self) -> str: ...

    @abstractmethod
    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        """Return a call that runs one batch and returns when the batch is finished.

        Args:
            network: a module on the CPU in evaluation mode, which is a copy that may be changed, or a file that
                `export` wrote.
            example: one batch of inputs on the CPU: a tensor, a tuple of them, or a dictionary by name.
            device: one of `devices`, perhaps with an index: "cuda:1".
            threads: how many CPU threads the call may use.
        """

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> PieceTimer:
        """Return a timer for the pieces of a network, in the order of `layers`; the latency table is made from them.

        The default is for runtimes that only report the time of a whole batch: it divides that time among the layers
        in proportion to their MACs. The table is then less accurate, which `LatencyTable.error` shows.

        Args:
            network: a module, as in `prepare`.
            example: as in `prepare`.
            layers: the layers that begin a piece.
            device: as in `prepare`.
            threads: as in `prepare`.
        """
        call = self.prepare(network, example, device=device, threads=threads)
        return PiecesByMacs(call, layers, self.clock)

    def export(self, network: nn.Module, path: Path, example: Any) -> RuntimeFile:
        """Write a module, as in `prepare`, to a file of this runtime; only called if there is a `suffix`."""
        raise InvalidOption(f"{self.title or self.name} has no file format. Deliver the network for another runtime.")

    def module_of(self, path: Path, original: nn.Module, example: Any) -> nn.Module:
        """Return a module that runs a file of this runtime and is called like the network that was exported.

        The accuracy of quantised networks is computed with it.

        Args:
            path: a file that `export` wrote.
            original: the network that was exported, as in `prepare`.
            example: one batch of inputs on the CPU.
        """
        raise InvalidOption(
            f"The runtime {self.name} does not run files as modules. Score the file {path.name} with your own code."
        )

    def quantized(self, images: Sequence[Any] | None) -> Runtime:
        """Return a runtime of the same name that runs every network in int8, and whose `precision` is "int8".

        Its `prepare`, `prepare_pieces` and `export` quantise the modules that they are given, and `export` returns a
        `QuantizedFile`. Its `suffix` differs from that of this runtime, since both files are delivered.

        Args:
            images: batches of inputs on the CPU from which the ranges of activations are found. None uses the example
                of each call: enough for timing, not for accuracy.
        """
        raise InvalidOption(
            f"The runtime {self.name} cannot run networks in int8. Use the precision float32, or another runtime such "
            "as onnxruntime."
        )

    def clock(self) -> float:
        """Return the current time in seconds; override it if the work is done by another machine or a simulator."""
        return time.perf_counter()

    def precision(self, network: nn.Module) -> str:
        """Return the type of numbers that a network is computed in here, such as "float32"."""
        types = (value.dtype for value in network.parameters() if value.is_floating_point())
        return str(next(types, torch.float32)).removeprefix("torch.")

    def device_name(self, device: str) -> str:
        """Return the name by which a latency table identifies a device: that of the GPU model, for example."""
        return device

    def runs_on(self, device: str) -> bool:
        """Return whether the runtime supports this kind of device, on any machine."""
        return device.partition(":")[0] in self.devices

    def require_kind(self, device: str) -> None:
        """Raise InvalidOption if the runtime does not support this kind of device."""
        if not self.runs_on(device):
            raise InvalidOption(
                f"The runtime {self.name} has no device {device!r}. Use {' or '.join(self.devices)}, or another "
                "runtime."
            )

    def require_device(self, device: str) -> None:
        """Raise InvalidOption if the runtime cannot use the device on this machine."""
        self.require_kind(device)

    def require_batch(self, batch: int) -> None:
        """Raise InvalidOption if the runtime cannot process this number of inputs at once."""
        if self.largest_batch is not None and batch > self.largest_batch:
            raise InvalidOption(
                f"The runtime {self.name} runs batches of at most {self.largest_batch}, but the batch has {batch} "
                f"inputs. Use a batch of {self.largest_batch}, or another runtime."
            )

    def require_installed(self) -> None:
        """Raise MissingPackage if one of the packages cannot be imported."""
        for package in self.packages:
            require_package(package, self.install or f"pip install {package}")

    @property
    def is_installed(self) -> bool:
        try:
            self.require_installed()
        except MissingPackage:
            return False
        return True

    def __repr__(self) -> str:
        return f"<runtime {self.name}>"


class RecordedPieces:
    """The seconds of each piece in the timed runs that were not taken yet."""

    def __init__(self) -> None:
        self._recorded: list[list[float]] = []

    def take_recorded(self) -> list[list[float]]:
        """Return the seconds of each piece in each timed run since the last call of this method."""
        recorded = self._recorded
        self._recorded = []
        return recorded


def shares_of_macs(layers: Sequence[TimedLayer]) -> tuple[float, ...]:
    """Return the share of each layer in the MACs of all."""
    total = sum(layer.macs for layer in layers)
    return tuple(layer.macs / total for layer in layers)


class PiecesByMacs(RecordedPieces):
    """The seconds of a whole batch, divided among the layers in proportion to their MACs."""

    def __init__(self, call: Callable[[], object], layers: Sequence[TimedLayer], clock: Callable[[], float]) -> None:
        super().__init__()
        self.run = call
        self._shares = shares_of_macs(layers)
        self._clock = clock

    def run_timed(self) -> None:
        start = self._clock()
        self.run()
        seconds = self._clock() - start
        self._recorded.append([seconds * share for share in self._shares])


@cache
def log_division_by_macs(network: str, reason: str) -> None:
    """Log once for each network and reason that the seconds of its pieces are estimated."""
    _logger.warning(
        "%s: %s. Its time is divided among the layers in proportion to their MACs, which makes the table less "
        "accurate: look at the error of the table before you use it.",
        network,
        reason,
    )
