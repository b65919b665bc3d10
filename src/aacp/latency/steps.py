"""discover_steps: for each group, the multiple of channels at which the kernels of a device step.

A group is set to a multiple of 32 (64 channels, or a quarter of the group), and to 1, 2, 4, 8, 16 and 32 channels less,
so that each power of two is once the largest that divides the width. If 8 channels less save no time, widths between
two multiples of 16 are wasted, and the step is at least 16. If they save what 8 channels should, the step is at most 8.

The probes of a group decide if their noise is small against the time that fewer channels should save. Groups whose
probes do not decide are measured again, `MAX_PASSES` times in all. Those that are undecided then keep the default step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from aacp.channels.elements import ChannelGroup
from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.errors import RunMismatch
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.pieces import Piece, TimedStructure
from aacp.latency.timers import MeasurementProgress, NetworkTimer, StructureTimer
from aacp.runs.folder import RunFolder
from aacp.user.progress import report_progress, without_progress

MULTIPLES = (1, 2, 4, 8, 16, 32)  # the steps that are considered
DEFAULT_STEP = 8  # the step of a group whose width has no effect on the time, or whose probes do not decide
PASSES = 3  # how often each probe is measured; the differences between passes are noise
MAX_PASSES = 12  # how often the probes of a group are measured if fewer passes do not decide its step
SIGNIFICANT_ERRORS = 5.0  # a difference counts if it is this many standard errors
MIN_SAVING = 0.5  # fewer channels must save this share of the time that proportional scaling predicts
MIN_NOISE = 0.005  # the relative noise is assumed to be at least this


class FoundSteps(dict[str, int]):
    """The pruning step of each group by name.

    Args:
        steps: these steps.
        undecided: the groups whose step timing did not decide, so that they have the default step.
    """

    def __init__(self, steps: Mapping[str, int], undecided: Iterable[str] = ()) -> None:
        super().__init__(steps)
        self.undecided = tuple(undecided)

    @property
    def note(self) -> str:
        """A sentence about the groups that are undecided; "" if there are none."""
        if not self.undecided:
            return ""
        return (
            f"timing did not decide the steps of {len(self.undecided)} of {len(self)} groups in up to {MAX_PASSES} "
            f"passes, so these keep the default of at most {DEFAULT_STEP} channels: {', '.join(self.undecided)}; find "
            "steps anew on a quiet machine, or give a number as step"
        )

    def to_json(self) -> dict[str, Any]:
        return {"steps": dict(self), "undecided": list(self.undecided)}

    @classmethod
    def from_json(cls, data: Any, file: str) -> FoundSteps:
        """Read what a file holds. Older versions did not name the undecided groups, or wrote the steps alone."""
        known = data if isinstance(data, dict) and isinstance(data.get("steps"), dict) else {"steps": data}
        steps: Any = known["steps"]
        undecided: Any = known.get("undecided", [])
        are_steps = isinstance(steps, dict) and all(type(step) is int and step >= 1 for step in steps.values())
        if not are_steps or not isinstance(undecided, list) or not all(name in steps for name in undecided):
            raise RunMismatch(f"{file} does not hold steps. Remove it to find them again, or choose another file.")
        return cls(steps, undecided)


@dataclass(frozen=True)
class JudgedStep:
    """The step of a group by its probes.

    Args:
        step: the step.
        decisive_noise: the relative noise at which the probes would decide; None if they do.
    """

    step: int
    decisive_noise: float | None = None

    @property
    def is_decided(self) -> bool:
        return self.decisive_noise is None

    @property
    def can_improve(self) -> bool:
        """Whether more passes may decide the step."""
        return self.decisive_noise is not None and self.decisive_noise >= MIN_NOISE


def discover_steps(
    model: nn.Module,
    graph: ChannelGraph,
    where: Deployment = HERE,
    *,
    example: Any,
    seconds_per_structure: float = 0.3,
) -> FoundSteps:
    """Find a pruning step for every free group by timing; `SearchSpace(graph, steps)` takes the result.

    The result names the groups whose step the measurements did not decide (`undecided`): these have the default step.

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


def kept_steps(
    folder: RunFolder,
    name: str,
    graph: ChannelGraph,
    find: Callable[[], FoundSteps],
    setting: Mapping[str, Any] | None = None,
) -> FoundSteps:
    """Return the steps that a file holds; if there is no file, find them and write it.

    Args:
        folder: the folder of the file.
        name: the name of the file.
        graph: the channel graph whose free groups the steps belong to.
        find: finds the steps by timing.
        setting: what the steps depend on besides the network, if the folder does not belong to one request; steps of
            another setting are rejected.
    """
    recorded = {} if setting is None else {"setting": setting}
    known = folder.read_json(name)
    if known is None:
        found = find()
        folder.write_json(name, {**recorded, **found.to_json()})
        return found
    found = FoundSteps.from_json(known, name)
    if known.get("setting") != setting or found.keys() != {group.name for group in graph.free}:
        raise RunMismatch(f"{name} holds steps of another network or setting. Remove it, or choose another file.")
    return found


def find_steps(timer: StructureTimer, graph: ChannelGraph) -> FoundSteps:
    """Find the steps by a timer; the probes of groups that are not decided are measured again."""
    groups = graph.free
    probes = _Probes(timer, groups)
    probes.measure(groups, PASSES)
    for number in range(PASSES + 1, MAX_PASSES + 1):
        noisy = [group for group in groups if probes.judged(group).can_improve]
        if not noisy:
            break
        report_progress(
            f"not decided yet: the steps of {len(noisy)} of {len(groups)} groups; measuring the probes of these again, "
            f"pass {number} of at most {MAX_PASSES}"
        )
        with without_progress():
            probes.measure(noisy, 1)
    found = {group.name: probes.judged(group) for group in groups}
    undecided = [name for name, judged in found.items() if not judged.is_decided]
    return FoundSteps({name: judged.step for name, judged in found.items()}, undecided)


class _Probes:
    """The times of the probes of groups so far; groups without a piece in common are probed in the same structure."""

    def __init__(self, timer: StructureTimer, groups: Sequence[ChannelGroup]) -> None:
        self._timer = timer
        self._groups = groups
        names = [group.name for group in groups]
        self._colours = dict(zip(names, coloured(names, timer.pieces), strict=True))
        self._seconds: dict[str, dict[int, list[float]]] = {name: {} for name in names}

    def judged(self, group: ChannelGroup) -> JudgedStep:
        """Return the step of a group by all passes so far."""
        return step_of(group, self._seconds[group.name])

    def measure(self, groups: Sequence[ChannelGroup], passes: int) -> None:
        """Measure the probes of these groups, with all other groups whole."""
        plan = self._plan(groups) * passes
        progress = MeasurementProgress("probes", len(plan))
        for probed, distance in plan:
            counts = {group.name: probe_counts(group)[distance] for group in probed}
            measured = self._timer(Structure([counts.get(group.name, group.width) for group in self._groups]))
            for name in counts:
                share = share_of(name, self._timer.pieces, measured)
                self._seconds[name].setdefault(distance, []).append(share)
            progress.step()

    def _plan(self, groups: Sequence[ChannelGroup]) -> list[tuple[list[ChannelGroup], int]]:
        """Return the structures to measure, each as the groups that it probes and their distance from the multiple.

        The multiple itself (distance 0) is measured twice, because all others are compared with it.
        """
        plan = []
        for colour in sorted({self._colours[group.name] for group in groups}):
            own = [group for group in groups if self._colours[group.name] == colour]
            distances = sorted({distance for group in own for distance in probe_counts(group)})
            plan += [
                ([group for group in own if distance in probe_counts(group)], distance) for distance in [0, *distances]
            ]
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


def step_of(group: ChannelGroup, seconds: Mapping[int, Sequence[float]]) -> JudgedStep:
    """Return the largest multiple between whose values no time is saved.

    Whether the step is larger than the default must be decided; in a small group, whether it is the largest one. A
    step below the default is only taken if fewer channels are seen to save time.

    Args:
        group: the group that was probed.
        seconds: the times of its probes by distance from the multiple, one time for each pass.
    """
    means = {distance: float(np.mean(values)) for distance, values in seconds.items()}
    noise = max(MIN_NOISE, SIGNIFICANT_ERRORS * _standard_error(list(seconds.values())))
    channels = group.width * group.unit_channels
    default = max(multiple for multiple in MULTIPLES if multiple <= min(DEFAULT_STEP, channels))
    largest = max(means)
    if 0 not in means or largest == 0:
        return JudgedStep(default)  # units are so large that there is nothing to compare
    top = max(probe_counts(group).values()) * group.unit_channels
    # If the noise is at most this, no saving at all and a saving in proportion can be told apart.
    decisive = {distance: MIN_SAVING * distance / top for distance in MULTIPLES}
    coarse = [distance for distance in means if distance >= max(1, min(default, largest // 2))]
    needed = decisive[min(coarse)]
    saved = {distance: 1 - mean / means[0] for distance, mean in means.items()}
    if all(abs(value) <= max(needed, noise) for value in saved.values()):  # the width makes no difference
        return JudgedStep(default, None if noise <= needed else needed)
    step = 1
    for multiple in MULTIPLES[1:]:
        distance = multiple // 2
        if multiple not in means or (distance not in means and multiple > default):
            break
        value = saved.get(distance, 0.0)
        if value > max(decisive[distance], noise):
            break  # it saves time
        if distance in coarse and decisive[distance] < noise and value > -noise:
            return JudgedStep(max(step, default), decisive[distance])
        step = multiple
    return JudgedStep(step)


def _standard_error(passes: Sequence[Sequence[float]]) -> float:
    """Return the relative standard error of the mean of a probe, from the differences between passes of all probes."""
    scattered = [np.array(values) / np.mean(values) for values in passes if len(values) > 1]
    if not scattered:
        return 0.0
    return float(np.sqrt(np.mean([values.var(ddof=1) / len(values) for values in scattered])))
