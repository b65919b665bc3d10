"""A runtime as a user would write it: a simulator of a device, with a clock of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import aacp

SECONDS_PER_MAC = 1e-9
SECONDS_PER_BATCH = 1e-4


@dataclass(frozen=True)
class SimulatorFile:
    path: Path
    file_bytes: int
    largest_difference: float | None = None


class Simulator(aacp.Runtime):
    """Runs networks on a device whose time is proportional to their MACs."""

    name = "simulator"
    version = "1.0"
    devices = ("npu",)

    def __init__(self) -> None:
        self.seconds = 0.0

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        macs = int(network.read_text()) if isinstance(network, Path) else count_macs(network, example)

        def run() -> None:
            self.seconds += SECONDS_PER_BATCH + SECONDS_PER_MAC * macs / threads

        return run

    def clock(self) -> float:
        return self.seconds


class FileSimulator(Simulator):
    """The same, with a file format that holds the number of MACs."""

    name = "file_simulator"
    suffix = ".macs"
    file_format = "a number"

    def export(self, network: nn.Module, path: Path, example: Any) -> SimulatorFile:
        path.write_text(str(count_macs(network, example)))
        return SimulatorFile(path, path.stat().st_size)


def count_macs(network: nn.Module, example: Any) -> int:
    """Count the MACs of one batch by running it: torch's own counter, not the library's."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(example)
    return int(counter.get_total_flops()) // 2


SIMULATOR = Simulator()  # for latency.simulator:SIMULATOR
