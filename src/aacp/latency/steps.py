"""discover_steps: for each group, the multiple of channels at which the kernels of a device step.

A group is set to a multiple of 32 (64 channels, or a quarter of the group), and to 1, 2, 4, 8, 16 and 32 channels less,
so that each power of two is once the largest that divides the width. If 8 channels less save no time, widths between
two multiples of 16 are wasted, and the step is at least 16. If they save what 8 channels should, the step is at most 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from aacp.channels.elements import ChannelGroup
from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.pieces import Piece, TimedStructure
from aacp.latency.timers import MeasurementProgress, NetworkTimer, StructureTimer

MULTIPLES = (1, 2, 4, 8, 16, 32)  # the steps that are considered
DEFAULT_STEP = 8  # the step of a group whose width has no measurable effect on the time
PASSES = 3  # how often each probe is measured; the differences between passes are noise
SIGNIFICANT_ERRORS = 5.0  # a difference counts if it is this many standard errors
MIN_SAVING = 0.5  # fewer channels must save this share of the time that proportional scaling predicts
MIN_NOISE = 0.005  # the relative noise is assumed to be at least this


def discover_steps(
    model: nn.Module,
    graph: ChannelGraph,
    where: Deployment = HERE,
    *,
    example: Any,
    seconds_per_structure: float = 0.3,
) -> dict[str, int]:
    """Find a pruning step for every free group by timing; `SearchSpace(graph, steps)` takes the result.

    Args:
        model: the unpruned network, which is not changed.
        graph: its channel graph.
        where: runtime, device, batch and threads.
        example: an input of the model.
        seconds_per_structure: how long to measure each structure, about.
    """
    conditions_here(model, where)
    timer = NetworkTimer(model, graph, example, where, seconds_per_structure)
    return find_steps(timer, graph)


def find_steps(timer: StructureTimer, graph: ChannelGraph) -> dict[str, int]:
    """Find the steps by a timer; groups that have no piece in common are probed in the same structure."""
    groups = graph.free
    colours = coloured([group.name for group in groups], timer.pieces)
    probes = [probe_counts(group) for group in groups]
    plan = _probe_plan(colours, probes) * PASSES
    progress = MeasurementProgress("probes", len(plan))
    seconds: list[dict[int, list[float]]] = [{} for _ in groups]
    for colour, distance in plan:
        probed = [i for i in range(len(groups)) if colours[i] == colour and distance in probes[i]]
        counts = [probes[i][distance] if i in probed else group.width for i, group in enumerate(groups)]
        measured = timer(Structure(counts))
        for i in probed:
            seconds[i].setdefault(distance, []).append(share_of(groups[i].name, timer.pieces, measured))
        progress.step()
    return {group.name: step_of(group, found) for group, found in zip(groups, seconds, strict=True)}


def _probe_plan(colours: Sequence[int], probes: Sequence[Mapping[int, int]]) -> list[tuple[int, int]]:
    """Return the structures to measure, each as a colour and a distance from the multiple.

    The multiple itself (distance 0) is measured twice, because all others are compared with it.
    """
    plan = []
    for colour in sorted(set(colours)):
        own = [distances for its, distances in zip(colours, probes, strict=True) if its == colour]
        distances = sorted({distance for one in own for distance in one})
        plan += [(colour, distance) for distance in [0, *distances]]
    return plan


def coloured(names: Sequence[str], pieces: Sequence[Piece]) -> list[int]:
    """Return a colour for each group, such that no piece depends on two groups of the same colour."""
    neighbours: dict[str, set[str]] = {name: set() for name in names}
    for piece in pieces:
        for name in piece.groups:
            neighbours[name] |= piece.groups - {name}
    colours: dict[str, int] = {}
    for name in names:
        taken = {colours[other] for other in neighbours[name] if other in colours}
        colours[name] = next(colour for colour in range(len(names)) if colour not in taken)
    return [colours[name] for name in names]


def probe_counts(group: ChannelGroup) -> dict[int, int]:
    """Return the counts of a group to measure, by their distance in channels below a multiple (0: the multiple)."""
    channels = group.width * group.unit_channels
    fitting = [multiple for multiple in MULTIPLES if 2 * multiple <= channels]
    # The multiple is small, because in a narrow layer a few channels are a share of the time that can be measured.
    limit = min(channels, max(2 * MULTIPLES[-1], channels // 4))
    top = limit // fitting[-1] * fitting[-1] if fitting else channels
    return {
        distance: (top - distance) // group.unit_channels
        for distance in [0, *fitting]
        if distance < top and (top - distance) % group.unit_channels == 0
    }


def share_of(name: str, pieces: Sequence[Piece], measured: TimedStructure) -> float:
    """Return the time of all pieces that depend on a group, relative to the unpruned network."""
    dependent = [name in piece.groups for piece in pieces]
    return float(np.array(measured.pieces)[dependent].sum()) / measured.reference_pieces


def step_of(group: ChannelGroup, seconds: Mapping[int, Sequence[float]]) -> int:
    """Return the largest multiple between whose values no time is saved.

    Args:
        group: the group that was probed.
        seconds: the times of its probes by distance from the multiple, one time for each pass.
    """
    means = {distance: float(np.mean(values)) for distance, values in seconds.items()}
    noise = max(MIN_NOISE, SIGNIFICANT_ERRORS * _standard_error(list(seconds.values())))
    default = max(
        multiple for multiple in MULTIPLES if multiple <= min(DEFAULT_STEP, group.width * group.unit_channels)
    )
    if 0 not in means or all(abs(1 - mean / means[0]) <= noise for mean in means.values()):
        return default  # the width makes no difference that can be seen
    channels = max(1, max(probe_counts(group).values()) * group.unit_channels)
    step = 1
    for multiple in MULTIPLES[1:]:
        distance = multiple // 2
        if multiple not in means or (distance not in means and multiple > default):
            break
        expected = MIN_SAVING * distance / channels
        saved = 1 - means.get(distance, means[0]) / means[0]
        saves_time = saved > max(expected, noise)
        is_undecided = expected < noise and saved > -noise  # the saving would be too small to be seen
        if saves_time or (multiple > default and is_undecided):
            break
        step = multiple
    return step


def _standard_error(passes: Sequence[Sequence[float]]) -> float:
    """Return the relative standard error of the mean of a probe, from the differences between passes of all probes."""
    scattered = [np.array(values) / np.mean(values) for values in passes if len(values) > 1]
    if not scattered:
        return 0.0
    return float(np.sqrt(np.mean([values.var(ddof=1) / len(values) for values in scattered])))
