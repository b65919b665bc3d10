"""A user's runtime that runs networks in int8 as well: a simulator whose kernels in int8 pad channels to 32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

import aacp
from aacp.latency.runtimes.runtime import TimedLayer

SECONDS_PER_WEIGHT = 1e-8
PADDED = 32  # channels in a block of the kernels in int8


class OwnRuntime(aacp.Runtime):
    """Runs layers in a time proportional to their weights, on a clock of its own."""

    name = "own"
    version = "1.0"

    def __init__(self) -> None:
        self.seconds = 0.0

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        assert isinstance(network, nn.Module)
        return self._timer(network).run

    def prepare_pieces(
        self, network: nn.Module, example: Any, layers: Sequence[TimedLayer], *, device: str, threads: int
    ) -> OwnPieces:
        return self._timer(network)

    def quantized(self, images: Sequence[Any] | None) -> OwnInt8:
        return OwnInt8(images)

    def clock(self) -> float:
        return self.seconds

    def rounded(self, channels: int) -> int:
        """The channels that a kernel computes."""
        return channels

    def _timer(self, network: nn.Module) -> OwnPieces:
        layers = [layer for layer in network.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))]
        return OwnPieces(self, [self.seconds_of(layer) for layer in layers])

    def seconds_of(self, layer: nn.Conv2d | nn.Linear) -> float:
        """The seconds of a layer, in proportion to the weights that its kernel reads."""
        outputs, inputs, *area = layer.weight.shape
        return SECONDS_PER_WEIGHT * math.prod(area) * self.rounded(inputs) * self.rounded(outputs)


class OwnInt8(OwnRuntime):
    """The same in int8: four times faster, in blocks of channels."""

    clocks: float = 0.0  # one clock for all objects, since each call for the runtime may return another

    def __init__(self, images: Sequence[Any] | None) -> None:
        super().__init__()
        self.images = images

    @property
    def seconds(self) -> float:  # type: ignore[override]
        return OwnInt8.clocks

    @seconds.setter
    def seconds(self, value: float) -> None:
        OwnInt8.clocks = value

    def rounded(self, channels: int) -> int:
        return PADDED * math.ceil(channels / PADDED) // 2

    def precision(self, network: nn.Module) -> str:
        return "int8"


class OwnPieces:
    """Advances the clock of a runtime by the seconds of each layer."""

    def __init__(self, runtime: OwnRuntime, seconds: list[float]) -> None:
        self._runtime = runtime
        self._seconds = seconds
        self._recorded: list[list[float]] = []

    def run(self) -> None:
        self._runtime.seconds += sum(self._seconds)

    def run_timed(self) -> None:
        self.run()
        self._recorded.append(self._seconds)

    def take_recorded(self) -> list[list[float]]:
        recorded = self._recorded
        self._recorded = []
        return recorded


OWN = OwnRuntime()  # for latency.own_int8:OWN
