"""check_latency: structures measured end to end, as they would be delivered, in turns with the original."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from aacp.channels import ChannelGraph
from aacp.graph.examples import with_batch
from aacp.graph.surgery import shrink
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.runtimes.torch import timed_copy, torch_threads
from aacp.latency.timing import Quartiles, Timing, time_interleaved
from aacp.structure import Structure

ORIGINAL = "original"  # the name of the unpruned network among the networks that are timed


@dataclass(frozen=True)
class LatencyCheck:
    """The seconds of one structure, and their ratio to those of the original in the same turn: 0.6 is 40 % faster."""

    structure: Structure
    seconds: Quartiles
    ratio: Quartiles

    @property
    def is_faster(self) -> bool:
        """Whether the structure was faster than the original in three of four turns."""
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
    """Measure structures end to end, in turns with the original.

    Args:
        model: the unpruned network, which is not changed.
        graph: its channel graph.
        structures: the structures to measure.
        where: runtime, device, batch and threads.
        example: an input of the model.
        turns: how often each network is measured.
    """
    conditions_here(model, where)
    chosen = list(structures)
    networks = {str(i): shrink(model, graph, structure, example=example) for i, structure in enumerate(chosen)}
    timed = time_networks({ORIGINAL: model, **networks}, example, where, turns=turns)
    return [_compared(structure, timed[ORIGINAL], timed[str(i)]) for i, structure in enumerate(chosen)]


def time_networks(
    networks: Mapping[str, nn.Module | str | os.PathLike[str]],
    example: Any,
    where: Deployment = HERE,
    *,
    turns: int = 20,
) -> dict[str, Timing]:
    """Time networks in turns; `speedup` compares two of them.

    Args:
        networks: modules, which are not changed, or files of the runtime, by name.
        example: an input; it is repeated or cut to the batch of the deployment.
        where: runtime, device, batch and threads.
        turns: how often each network is measured.
    """
    where.require_device()
    runtime = where.resolved_runtime
    runtime.require_installed()
    batch = with_batch(example, where.batch)
    calls = {}
    for name, network in networks.items():
        source = timed_copy(network) if isinstance(network, nn.Module) else Path(network)
        calls[name] = runtime.prepare(source, batch, device=where.device, threads=where.threads)
    # torch is limited in every runtime: its own threads would take the processor from the one that is timed.
    with torch_threads(where.threads):
        return time_interleaved(calls, turns=turns, clock=runtime.clock)


def _compared(structure: Structure, original: Timing, timing: Timing) -> LatencyCheck:
    ratios = np.asarray(timing.seconds) / np.asarray(original.seconds)
    return LatencyCheck(structure, timing.spread, Quartiles.of(ratios))
