"""check_latency: structures measured end to end, as the files that would be delivered, in turns with the original."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from aacp.artefact.onnx import export_onnx
from aacp.channels import ChannelGraph
from aacp.graph.surgery import shrink
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.runtimes import Network, time_networks
from aacp.latency.timing import Quartiles, Timing
from aacp.structure import Structure

ORIGINAL = "original"


@dataclass(frozen=True)
class LatencyCheck:
    """What one structure took, and how much of what the original took in the same turn: 0.6 is 40 % faster."""

    structure: Structure
    seconds: Quartiles
    ratio: Quartiles

    @property
    def is_faster(self) -> bool:
        """Whether it was in three of four turns."""
        return self.ratio.upper < 1

    def __str__(self) -> str:
        return f"{1e3 * self.seconds.median:.3g} ms, {self.ratio} of the original"


def check_latency(
    model: nn.Module,
    graph: ChannelGraph,
    structures: Iterable[Structure],
    where: Deployment = HERE,
    *,
    example: Any,
    turns: int = 20,
) -> list[LatencyCheck]:
    """Measure structures end to end: modules in torch, exported files in ONNX Runtime. The model is not touched."""
    conditions_here(model, where)
    chosen = list(structures)
    networks = {str(i): shrink(model, graph, structure, example=example) for i, structure in enumerate(chosen)}
    timed = time_delivered({ORIGINAL: model, **networks}, example, where, turns)
    return [_compared(structure, timed[ORIGINAL], timed[str(i)]) for i, structure in enumerate(chosen)]


def time_delivered(networks: dict[str, nn.Module], example: Any, where: Deployment, turns: int) -> dict[str, Timing]:
    """The seconds of networks in the form in which a runtime gets them, in turns."""
    threads, batch = where.threads, where.batch
    if where.runtime == "torch":
        return time_networks(networks, example, threads=threads, batch=batch, turns=turns, device=where.device)
    with tempfile.TemporaryDirectory(prefix="aacp-latency-") as folder:
        files: dict[str, Network] = {
            name: export_onnx(network, Path(folder) / f"{name}.onnx", example, check=False).path
            for name, network in networks.items()
        }
        return time_networks(files, example, threads=threads, batch=batch, turns=turns)


def _compared(structure: Structure, original: Timing, timing: Timing) -> LatencyCheck:
    ratios = np.asarray(timing.seconds) / np.asarray(original.seconds)
    return LatencyCheck(structure, timing.spread, Quartiles.of(ratios))
