"""Deployment: where a network will run, and what a latency measured there depends on."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from aacp.errors import InvalidOption
from aacp.latency.pieces import MeasurementConditions
from aacp.latency.runtimes import require_package
from aacp.runs.provenance import machine

RUNTIMES = ("onnxruntime", "torch")


@dataclass(frozen=True)
class Deployment:
    """Where the network will run: what its latency is measured in."""

    runtime: str = "onnxruntime"
    device: str = "cpu"
    batch: int = 1
    threads: int = 2

    def __post_init__(self) -> None:
        if self.runtime not in RUNTIMES:
            raise InvalidOption(f"There is no runtime {self.runtime!r}. Choose {' or '.join(RUNTIMES)}.")
        if self.batch < 1 or self.threads < 1:
            raise InvalidOption(
                f"A batch of {self.batch} on {self.threads} threads cannot be timed. Give 1 or more of both."
            )
        if self.device != "cpu" and self.runtime == "onnxruntime":
            raise InvalidOption(
                f"ONNX Runtime is timed on the CPU, not on {self.device!r}. Use device cpu, or the runtime torch."
            )

    def require_device(self) -> None:
        """Refuse a device that this machine does not have."""
        if self.device != "cpu" and not (self.device.startswith("cuda") and torch.cuda.is_available()):
            raise InvalidOption(
                f"There is no device {self.device!r} here. Use cpu, or cuda on a machine that has a GPU."
            )


HERE: Deployment = Deployment()


def conditions_here(model: nn.Module, where: Deployment = HERE) -> MeasurementConditions:
    """What a latency measured here and now depends on; refuses what cannot be measured."""
    where.require_device()
    version = torch.__version__ if where.runtime == "torch" else require_package("onnxruntime").__version__
    if where.runtime == "onnxruntime":
        require_package("onnx")
    name = "cpu" if where.device == "cpu" else torch.cuda.get_device_name(where.device)
    dtype = next((value.dtype for value in model.parameters() if value.is_floating_point()), torch.float32)
    precision = str(dtype).removeprefix("torch.")
    return MeasurementConditions(where.runtime, version, name, precision, where.batch, where.threads, machine())
