"""check_latency: structures measured end to end, as they would be delivered, in turns with the original."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.cost.budget import Limit
from aacp.cost.quantities import amount
from aacp.graph.examples import with_batch
from aacp.graph.surgery import shrink
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.judging import unsteadiness
from aacp.latency.runtimes.torch import timed_copy, torch_threads
from aacp.latency.timing import MAX_SECONDS, MedianInterval, Timing, ratio, time_interleaved

ORIGINAL = "original"  # the name of the unpruned network among the networks that are timed


class Verdict(Enum):
    """What a measurement says about a limit on latency."""

    MET = "within the limit"
    MISSED = "over the limit"
    UNDECIDED = "too noisy to tell"


@dataclass(frozen=True)
class LatencyCheck:
    """A structure that was timed in turns with the original; the medians are known up to their intervals.

    Args:
        structure: the structure that was timed.
        seconds: its seconds.
        ratio: its seconds divided by those of the original in the same turn: 0.6 is 40 % less time.
        original: the seconds of the original in these turns.
    """

    structure: Structure
    seconds: MedianInterval
    ratio: MedianInterval
    original: MedianInterval

    @classmethod
    def of(cls, structure: Structure, original: Timing, timing: Timing) -> LatencyCheck:
        """Compare the seconds of a structure with those of the original in the same turns."""
        return cls(structure, timing.interval, ratio(timing, original), original.interval)

    @property
    def is_faster(self) -> bool:
        """Whether the structure is faster than the original beyond the uncertainty of the measurement."""
        return self.ratio.upper < 1

    def share_of(self, limit: Limit) -> MedianInterval:
        """Return the latency divided by a limit on it: the ratio to the original counts if the limit is a rate."""
        if limit.at_most is not None:
            return self.seconds.scaled(1 / limit.at_most)
        assert limit.pruning_rate is not None
        return self.ratio.scaled(1 / (1 - limit.pruning_rate))

    def verdict(self, limit: Limit) -> Verdict:
        """Return whether a limit is met: only an interval that lies on one side of the limit decides."""
        share = self.share_of(limit)
        if share.upper <= 1:
            return Verdict.MET
        return Verdict.MISSED if share.lower > 1 else Verdict.UNDECIDED

    @property
    def remedy(self) -> str:
        """What to do if this structure is too slow. Disturbed turns do not show whether the limit can be met."""
        found = unsteadiness(self.original.lower, self.original.upper)
        return f"Close other programs, since {found}, or loosen the limit" if found else "Loosen the limit"

    def __str__(self) -> str:
        own = self.seconds
        low, median, high, original = (
            amount(value, "s") for value in (own.lower, own.median, own.upper, self.original.median)
        )
        return f"{median} ({low} to {high}), the original's {original}; {self.ratio} of it in the median turn"


def check_latency(
    model: nn.Module,
    graph: ChannelGraph,
    structures: Iterable[Structure],
    where: Deployment = HERE,
    *,
    example: Any,
    turns: int = 20,
    limit: Limit | None = None,
    max_seconds: float = MAX_SECONDS,
) -> list[LatencyCheck]:
    """Measure structures end to end, in turns with the original.

    With a limit, turns are added until the measurement decides for every structure whether it meets the limit, or the
    time is up.

    Args:
        model: the unpruned network, which is not changed.
        graph: its channel graph.
        structures: the structures to measure.
        where: runtime, device, batch and threads.
        example: an input of the model.
        turns: how often each network is measured at first.
        limit: a limit on the latency that the measurement should decide.
        max_seconds: how long to measure, about, if the limit is not decided earlier.
    """
    conditions_here(model, where)
    chosen = list(structures)
    networks = {str(i): shrink(model, graph, structure, example=example) for i, structure in enumerate(chosen)}

    def compared(timed: Mapping[str, Timing]) -> list[LatencyCheck]:
        return [LatencyCheck.of(structure, timed[ORIGINAL], timed[str(i)]) for i, structure in enumerate(chosen)]

    def is_decided(timed: Mapping[str, Timing]) -> bool:
        return limit is None or all(each.verdict(limit) is not Verdict.UNDECIDED for each in compared(timed))

    all_networks = {ORIGINAL: model, **networks}
    return compared(
        time_networks(all_networks, example, where, turns=turns, is_decided=is_decided, max_seconds=max_seconds)
    )


def time_networks(
    networks: Mapping[str, nn.Module | str | os.PathLike[str]],
    example: Any,
    where: Deployment = HERE,
    *,
    turns: int = 20,
    is_decided: Callable[[Mapping[str, Timing]], bool] | None = None,
    max_seconds: float = MAX_SECONDS,
) -> dict[str, Timing]:
    """Time networks in turns; `speedup` compares two of them.

    Args:
        networks: modules, which are not changed, or files of the runtime, by name.
        example: an input; it is repeated or cut to the batch of the deployment.
        where: runtime, device, batch and threads.
        turns: how often each network is measured at first.
        is_decided: whether timings are sufficient; otherwise turns are added. None accepts the first.
        max_seconds: how long to measure, about, if nothing is decided earlier.
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
        return time_interleaved(calls, turns=turns, clock=runtime.clock, is_decided=is_decided, max_seconds=max_seconds)
