"""Deployment: where a network will run, and the conditions that a latency measured there depends on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from aacp.latency.pieces import MeasurementConditions
from aacp.latency.runtimes.registry import find_runtime
from aacp.latency.runtimes.runtime import INT8, Runtime
from aacp.pytorch.modules import require_network
from aacp.runs.provenance import machine
from aacp.user.options import known_options, require_known
from aacp.user.values import whole_number

MAX_THREADS = 1024
PRECISIONS = ("float32", INT8)  # float32 runs a network as it is, whatever the type of its numbers


@known_options
@dataclass(frozen=True)
class Deployment:
    """Where a network will run: its latency is measured there.

    Args:
        runtime: the name of a runtime, `package.module:NAME` of your own, or a `Runtime` object.
        device: a device of the runtime, such as "cpu" or "cuda:1".
        batch: how many inputs the network processes at once.
        threads: how many CPU threads it may use.
        precision: "float32" runs networks as they are, "int8" quantises them first, where the runtime can do so.
    """

    runtime: str | Runtime = "onnxruntime"
    device: str = "cpu"
    batch: int = 1
    threads: int = 2
    precision: str = "float32"

    def __post_init__(self) -> None:
        require_known("precision", self.precision, PRECISIONS)
        object.__setattr__(self, "batch", whole_number("batch", self.batch, 1))
        object.__setattr__(self, "threads", whole_number("threads", self.threads, 1, MAX_THREADS))
        self.resolved_runtime.require_kind(self.device)
        self.resolved_runtime.require_batch(self.batch)

    @property
    def resolved_runtime(self) -> Runtime:
        """The runtime itself, where `runtime` may be its name; in int8 it is calibrated for timing only."""
        return self.runtime_calibrated_on(None)

    @property
    def is_quantized(self) -> bool:
        """Whether networks are quantised before they run."""
        return self.precision == INT8

    def runtime_calibrated_on(self, images: Sequence[Any] | None) -> Runtime:
        """Return the runtime; in int8 it finds the ranges of activations on these batches of inputs."""
        runtime = find_runtime(self.runtime)
        return runtime.quantized(images) if self.is_quantized else runtime

    def require_device(self) -> None:
        """Reject a device that this machine does not have."""
        self.resolved_runtime.require_device(self.device)

    def conditions(self, precision: str) -> MeasurementConditions:
        """Return the conditions of a latency measured here and now, of a network whose numbers have this type."""
        self.require_device()
        runtime = self.resolved_runtime
        runtime.require_installed()
        return MeasurementConditions(
            runtime=runtime.name,
            version=runtime.version,
            device=runtime.device_name(self.device),
            precision=precision,
            batch=self.batch,
            threads=self.threads,
            machine=machine(),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which `Deployment(**data)` makes an equal deployment, if the runtime has a name."""
        name = self.runtime.name if isinstance(self.runtime, Runtime) else self.runtime
        return {**vars(self), "runtime": name}


HERE: Deployment = Deployment()


def conditions_here(model: nn.Module, where: Deployment = HERE) -> MeasurementConditions:
    """Return the conditions of a latency measured here and now; reject what cannot be measured here."""
    require_network(model)
    return where.conditions(where.resolved_runtime.precision(model))
