"""measure_latency: a LatencyTable of a network on this machine, from structures spread over a search space.

Every measured structure is a line in a log beside the table. If a measurement is stopped, the same call resumes it and
loses only the structure that was being measured. If the table cannot decide anything, the noisiest structures are
measured again, a quarter of them at a time and as many in all as were planned. If that does not help, no table is made.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.channels.structure import Structure
from aacp.disk.records import WrongValue, plain, read_value
from aacp.disk.writing import require_place
from aacp.errors import AACPError, RunMismatch
from aacp.latency.defaults import SECONDS_PER_STRUCTURE, STRUCTURES
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.judging import QUIET_NOISE, STEADY_RATIO
from aacp.latency.pieces import MeasurementConditions, TimedStructure
from aacp.latency.remote import one_worker, timing_on
from aacp.latency.runtimes.torch import timed_copy
from aacp.latency.table import LatencyTable
from aacp.latency.timers import MeasurementProgress, NetworkTimer, StructureTimer
from aacp.pytorch.modules import require_network
from aacp.runs.folder import RunFolder
from aacp.user.progress import report_progress

HELD_OUT = 10  # how many more structures are measured, only to determine the error of the table
EXTRA_ROUNDS = 4  # how often the noisiest structures are measured again if the table cannot decide anything
EXTRA_SHARE = 1 / EXTRA_ROUNDS  # how many of all structures are measured again in each of these rounds

# The structures that a table is fitted to, and those that its error is measured on.
MeasurementPlan = tuple[Sequence[Structure], Sequence[Structure]]


def measure_latency(
    model: nn.Module,
    graph: ChannelGraph,
    space: SearchSpace,
    where: Deployment = HERE,
    *,
    example: Any,
    file: str | os.PathLike[str] | None = None,
    structures: int = STRUCTURES,
    held_out: int = HELD_OUT,
    seconds_per_structure: float = SECONDS_PER_STRUCTURE,
    seed: int = 0,
    accept_noise: bool = False,
    workers: int | str | None = None,
) -> LatencyTable:
    """Time structures of a search space piece by piece, and make a table that predicts the seconds of all others.

    Args:
        model: the unpruned network, which is not changed.
        graph: its channel graph.
        space: the search space that the structures are drawn from.
        where: runtime, device, batch and threads.
        example: an input of the model.
        file: where to save the table; with a file, an interrupted measurement can be resumed.
        structures: how many structures the table is fitted to.
        held_out: how many more structures are measured to state the table's error.
        seconds_per_structure: how long to measure each structure, about; longer if the machine is busy.
        seed: the seed of the random structures.
        accept_noise: make a table even if it cannot decide anything, and do not measure longer.
        workers: the address of a Ray cluster, such as ray://head:10001, one of whose workers measures, so that the
            table is of its machine; 1 is a worker of the cluster that RAY_ADDRESS names. None measures here.
    """
    plan = measurement_plan(space, structures, held_out, seed)
    path = None if file is None else Path(file)
    if workers is None:
        conditions = conditions_here(model, where)
        timer = NetworkTimer(model, graph, example, where, seconds_per_structure)
        return measure_table(timer, graph, space, conditions, plan, path, accept_noise=accept_noise)
    request = one_worker(workers)
    require_network(model)
    timer = NetworkTimer(timed_copy(model), graph, example, where, seconds_per_structure)  # workers may have no GPU
    with timing_on(request, timer, where) as remote:
        conditions = remote.conditions
        # Limits are then decided by a check on that machine, which needs files of the networks.
        elsewhere = where.resolved_runtime.suffix is not None and not _is_here(conditions, timer)
        return measure_table(
            remote, graph, space, conditions, plan, path, accept_noise=accept_noise, elsewhere=elsewhere
        )


def _is_here(conditions: MeasurementConditions, timer: NetworkTimer) -> bool:
    """Whether this process could measure under these conditions."""
    try:
        return timer.conditions() == conditions
    except AACPError:  # there is no such device or runtime here
        return False


def measurement_plan(space: SearchSpace, structures: int, held_out: int, seed: int) -> MeasurementPlan:
    """Draw the structures that a table is fitted to, and others that its error is measured on, each structure once.

    A small space has fewer: then all of its structures are measured, and a part of them is held out.

    Args:
        space: the search space.
        structures: how many structures the table is fitted to, if there are as many.
        held_out: how many structures its error is measured on, if there are as many.
        seed: the seed of the draws.
    """
    if space.size < structures + held_out:
        structures = max(1, space.size * structures // (structures + held_out))
        held_out = space.size - structures
    fitted = _others(space, spread_structures(space, structures, seed), structures, seed, ())
    return fitted, _others(space, spread_structures(space, held_out, seed + 1, ends=False), held_out, seed + 1, fitted)


def _others(
    space: SearchSpace, drawn: Sequence[Structure], count: int, seed: int, taken: Sequence[Structure]
) -> list[Structure]:
    """`count` different structures that are not taken: those that were drawn, completed by more draws."""
    generator = np.random.default_rng([seed, 1])
    found = [structure for structure in dict.fromkeys(drawn) if structure not in taken]
    seen = {*found, *taken}
    while len(found) < count:
        other = space.structure(generator.integers(0, space.levels))
        if other not in seen:
            seen.add(other)
            found.append(other)
    return found


def spread_structures(space: SearchSpace, count: int, seed: int, ends: bool = True) -> list[Structure]:
    """Draw structures in which each choice of each group occurs about equally often.

    Every other structure is drawn from the upper half of the choices: searches look there, and an even draw seldom
    does.

    Args:
        space: the search space.
        count: how many structures to draw.
        seed: the seed of the draw.
        ends: whether to begin with the largest and the smallest structure of the space.
    """
    generator = np.random.default_rng(seed)
    first = [space.full, space.smallest][: count if ends else 0]
    rest = count - len(first)
    genes = np.stack([_evenly(int(levels), rest, generator) for levels in space.levels], axis=1)
    genes[1::2] = (genes[1::2] + space.levels) // 2
    return [*first, *(space.structure(row) for row in genes)]


def _evenly(levels: int, count: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return `count` numbers below `levels` in random order, each about equally often."""
    rounds = math.ceil(count / levels)
    drawn = np.concatenate([generator.permutation(levels) for _ in range(rounds)] or [np.zeros(0, dtype=np.int64)])
    return generator.permutation(drawn[:count])


def measure_table(
    timer: StructureTimer,
    graph: ChannelGraph,
    space: SearchSpace,
    conditions: MeasurementConditions,
    plan: MeasurementPlan,
    file: Path | None = None,
    *,
    accept_noise: bool = False,
    elsewhere: bool = False,
) -> LatencyTable:
    """Measure the structures of a plan that the log does not hold yet, and make a table of all.

    A table that cannot decide anything is measured longer, and then rejected with InconclusiveMeasurement.

    Args:
        timer: what measures a structure.
        graph: the channel graph of the network.
        space: the search space that the plan was drawn from.
        conditions: what the measurements depend on besides the network.
        plan: the structures to fit the table to, and those to measure its error on.
        file: where to save the table, with the log beside it; None keeps everything in memory.
        accept_noise: make a table even if it cannot decide anything, and do not measure longer.
        elsewhere: whether the timer measures on a machine that is not here.
    """
    if file is not None:
        require_place(file)
    fitted, held_out = plan
    counts = [[list(structure) for structure in part] for part in plan]
    sizes = [[layer.name, layer.kind, layer.output_size] for layer in graph.layers]
    kinds = [piece.kind for piece in timer.pieces]
    request = plain([asdict(conditions), space.names, space.choices, counts, sizes, kinds])
    structures = [*fitted, *held_out]
    log = _MeasurementLog(file, request, structures)
    progress = MeasurementProgress("structures", len(structures), min(len(log.lines), len(structures)))
    for structure in structures[len(log.lines) :]:
        log.add(timer(structure))
        progress.step()

    def fit() -> LatencyTable:
        measured = log.merged(len(structures))
        return LatencyTable(
            model=graph.model,
            conditions=conditions,
            names=space.names,
            choices=space.choices,
            pieces=timer.pieces,
            measured=tuple(measured[: len(fitted)]),
            held_out=tuple(measured[len(fitted) :]),
            accepts_noise=accept_noise,
        )

    table = fit() if accept_noise else _decisive(fit, timer, log)
    table.require_decisive()
    if elsewhere:
        table = replace(table, elsewhere=True)  # a copy is fitted again, which takes a tenth of a second
    if file is not None:
        table.save(file)
    return table


def _decisive(fit: Callable[[], LatencyTable], timer: StructureTimer, log: _MeasurementLog) -> LatencyTable:
    """Measure the noisiest structures again until the table can decide, as often as is allowed, and return the table.

    Args:
        fit: makes the table of all measurements so far.
        timer: what measures a structure.
        log: the measurements so far.
    """
    table = fit()
    for number in range(1, EXTRA_ROUNDS + 1):
        noisy = _noisy_structures(table)
        if not table.problem or not noisy:
            break
        noisiest = noisy[: math.ceil(EXTRA_SHARE * len((*table.measured, *table.held_out)))]
        words = f"measuring the {len(noisiest)} noisiest structures again, {number} of {EXTRA_ROUNDS} times"
        report_progress(f"not decided yet: {table.problem}; {words}")
        for structure in noisiest:
            log.add(timer(structure))
        table = fit()
    return table


def _noisy_structures(table: LatencyTable) -> list[Structure]:
    """Return the structures whose measurements are not quiet, each once, the noisiest first.

    A machine that is busy all the time may be slow without noise, so the time of the unpruned network counts too.
    """
    runs = (*table.measured, *table.held_out)
    usual = STEADY_RATIO * min(run.reference for run in runs)
    disturbed = {run: max(run.noise / QUIET_NOISE, run.reference / usual) for run in runs}
    noisiest = sorted(runs, key=disturbed.__getitem__, reverse=True)
    return list(dict.fromkeys(Structure(run.structure) for run in noisiest if disturbed[run] > 1))


class _MeasurementLog:
    """The measurements so far, in memory and, if there is a file, in a log beside it: `table.json.log`."""

    def __init__(self, file: Path | None, request: Any, planned: Sequence[Structure]) -> None:
        self._folder = None if file is None else RunFolder(file.parent)
        self._name = "" if file is None else f"{file.name}.log"
        lines = self._folder.read_log(self._name) if self._folder else []
        # The logs of older versions have no kinds of pieces, or no sizes of layers either.
        if lines and lines[0] not in (request, request[:-1], request[:-2]):
            raise RunMismatch(
                f"{self._name} holds measurements of another network, space or setting. Remove it, or choose another "
                "file for the table."
            )
        if self._folder and not lines:
            self._folder.append(self._name, request)
        self.lines: list[TimedStructure] = []
        try:
            for position, line in enumerate(lines[1:], 2):
                self.lines.append(read_value(TimedStructure, line, f"line {position}"))
        except WrongValue as error:
            raise RunMismatch(
                f"{self._name} is damaged: {error}. Remove it to measure again, or choose another file for the table."
            ) from error
        if any(run.structure != structure.counts for run, structure in zip(self.lines, planned, strict=False)):
            raise RunMismatch(
                f"{self._name} holds structures in another order than they are measured in, as after two commands at "
                "the same time. Remove it to measure again, or choose another file for the table."
            )

    def merged(self, planned: int) -> list[TimedStructure]:
        """Return the planned measurements, each merged with all later ones of the same structure."""
        found = self.lines[:planned]
        for later in self.lines[planned:]:
            found = [run.merged(later) if run.structure == later.structure else run for run in found]
        return found

    def add(self, measured: TimedStructure) -> None:
        """Append a measurement to the log."""
        self.lines.append(measured)
        if self._folder:
            self._folder.append(self._name, asdict(measured))
