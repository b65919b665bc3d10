"""discover_steps: for each group the multiple of channels at which the device's kernels step.

A group's width is set just below a multiple of 32 (64 channels, or a quarter of the group) by 1, 2, 4, 8 and 16
channels, so that each power of two is the largest that divides it once. If 8 channels less save no time, widths
between two multiples of 16 are wasted, and the step is 16 at least; if they save what 8 channels should, 8 at most.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from aacp.channels import ChannelGraph, ChannelGroup
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.pieces import Piece, TimedStructure
from aacp.latency.timers import NetworkTimer, Progress, StructureTimer
from aacp.structure import Structure

MULTIPLES = (1, 2, 4, 8, 16, 32)
USUAL = 8  # where timing says nothing
PASSES = 3  # over all probes: what differs between them is noise
SURE = 5.0  # standard errors that a difference must have to be believed
WORTH = 0.5  # of what proportional work would save: less is no saving
LEAST_NOISE = 0.005


def discover_steps(
    model: nn.Module,
    graph: ChannelGraph,
    where: Deployment = HERE,
    *,
    example: Any,
    seconds_per_structure: float = 0.3,
    verbose: bool = False,
) -> dict[str, int]:
    """A pruning step for every free group, found by timing; `SearchSpace(graph, steps)` takes it."""
    conditions_here(model, where)
    bench = NetworkTimer(model, graph, example, where, seconds_per_structure)
    return find_steps(bench, graph, verbose)


def find_steps(bench: StructureTimer, graph: ChannelGraph, verbose: bool = False) -> dict[str, int]:
    """The steps that a bench shows; groups that no piece has in common are probed in the same structure."""
    groups = graph.free
    colours = coloured([group.name for group in groups], bench.pieces)
    probes = [probe_counts(group) for group in groups]
    plan = [
        (colour, distance)
        for colour in sorted(set(colours))
        for distance in [0, *sorted({d for c, its in zip(colours, probes, strict=True) if c == colour for d in its})]
    ] * PASSES  # the multiple itself twice: all others are held against it
    progress = Progress("probes", len(plan), verbose=verbose)
    seconds: list[dict[int, list[float]]] = [{} for _ in groups]
    for colour, distance in plan:
        chosen = [i for i, its in enumerate(colours) if its == colour and distance in probes[i]]
        counts = [probes[i][distance] if i in chosen else group.width for i, group in enumerate(groups)]
        measured = bench(Structure(counts))
        for i in chosen:
            seconds[i].setdefault(distance, []).append(share_of(groups[i].name, bench.pieces, measured))
        progress.step()
    return {group.name: step_of(group, found) for group, found in zip(groups, seconds, strict=True)}


def coloured(names: Sequence[str], pieces: Sequence[Piece]) -> list[int]:
    """A colour for each group, such that no piece depends on two of the same colour."""
    neighbours: dict[str, set[str]] = {name: set() for name in names}
    for piece in pieces:
        within = {name for width in piece.widths for name, _ in width.groups}
        for name in within:
            neighbours[name] |= within - {name}
    colours: dict[str, int] = {}
    for name in names:
        taken = {colours[other] for other in neighbours[name] if other in colours}
        colours[name] = next(colour for colour in range(len(names)) if colour not in taken)
    return [colours[name] for name in names]


def probe_counts(group: ChannelGroup) -> dict[int, int]:
    """Counts of a group by their distance in channels from the multiple that they lie below, itself included."""
    channels = group.width * group.unit_channels
    fitting = [multiple for multiple in MULTIPLES if 2 * multiple <= channels]
    # In a narrow layer a few channels are a share that can be seen.
    near = min(channels, max(2 * MULTIPLES[-1], channels // 4))
    top = near // fitting[-1] * fitting[-1] if fitting else channels
    distances = [0, *fitting]
    return {
        distance: (top - distance) // group.unit_channels
        for distance in distances
        if distance < top and (top - distance) % group.unit_channels == 0
    }


def share_of(name: str, pieces: Sequence[Piece], measured: TimedStructure) -> float:
    """The time of all pieces that depend on a group, relative to the unpruned network."""
    mine = [any(name == group for width in piece.widths for group, _ in width.groups) for piece in pieces]
    return float(np.array(measured.pieces)[mine].sum()) / measured.reference_pieces


def step_of(group: ChannelGroup, seconds: Mapping[int, Sequence[float]]) -> int:
    """The largest multiple below which nothing is saved; 8 where the width makes no difference that can be seen."""
    means = {distance: float(np.mean(values)) for distance, values in seconds.items()}
    noise = max(LEAST_NOISE, SURE * _standard_error(list(seconds.values())))
    usual = max(multiple for multiple in MULTIPLES if multiple <= min(USUAL, group.width * group.unit_channels))
    if 0 not in means or all(abs(1 - mean / means[0]) <= noise for mean in means.values()):
        return usual
    channels = max(1, max(probe_counts(group).values()) * group.unit_channels)
    step = 1
    for multiple in MULTIPLES[1:]:
        distance = multiple // 2
        if multiple not in means or (distance not in means and multiple > usual):
            break
        worth = WORTH * distance / channels
        saved = 1 - means.get(distance, means[0]) / means[0]
        if saved > max(worth, noise) or (multiple > usual and worth < noise and saved > -noise):
            break
        step = multiple
    return step


def _standard_error(passes: Sequence[Sequence[float]]) -> float:
    """Of the mean of a probe, relative: from what its passes differ by, all probes together."""
    scattered = [np.array(values) / np.mean(values) for values in passes if len(values) > 1]
    if not scattered:
        return 0.0
    return float(np.sqrt(np.mean([values.var(ddof=1) / len(values) for values in scattered])))
