"""measure_latency: a LatencyTable of a network on this machine, from structures spread over a space.

Every structure that was measured is a line in a log beside the table: whatever ends the measurement, the same call goes
on with the structure that was in hand.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from aacp.channels import ChannelGraph
from aacp.errors import RunMismatch
from aacp.latency.deployment import HERE, Deployment, conditions_here
from aacp.latency.pieces import MeasurementConditions, TimedStructure
from aacp.latency.progress import Progress
from aacp.latency.table import LatencyTable
from aacp.latency.timers import NetworkTimer, StructureTimer
from aacp.runs.folder import RunFolder
from aacp.space import SearchSpace
from aacp.structure import Structure

STRUCTURES, HELD_OUT = 48, 10


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
    seconds_per_structure: float = 1.0,
    seed: int = 0,
    verbose: bool = False,
) -> LatencyTable:
    """Time `structures` structures of the space piece by piece, and some more to judge the table by.

    With a `file`, the table is saved there, and a call that was interrupted goes on where it was. The model is not
    touched.
    """
    setting = conditions_here(model, where)
    bench = NetworkTimer(model, graph, example, where, seconds_per_structure)
    plan = spread_structures(space, structures, seed), spread_structures(space, held_out, seed + 1, ends=False)
    return measure_table(bench, graph, space, setting, plan, None if file is None else Path(file), verbose)


def spread_structures(space: SearchSpace, count: int, seed: int, ends: bool = True) -> list[Structure]:
    """Structures in which each choice of each group occurs about equally often; with both ends of the space.

    Every other one is drawn from the upper half: that is where searches look, and an even draw hardly ever is.
    """
    generator = np.random.default_rng(seed)
    first = [space.full, space.smallest][: count if ends else 0]
    rest = count - len(first)
    genes = np.stack([_evenly(int(levels), rest, generator) for levels in space.levels], axis=1)
    genes[1::2] = (genes[1::2] + space.levels) // 2
    return [*first, *(space.structure(row) for row in genes)]


def _evenly(levels: int, count: int, generator: np.random.Generator) -> Any:
    """So many numbers below `levels`, each about equally often, in any order."""
    rounds = math.ceil(count / levels)
    drawn = np.concatenate([generator.permutation(levels) for _ in range(rounds)] or [np.zeros(0, dtype=np.int64)])
    return generator.permutation(drawn[:count])


def measure_table(
    bench: StructureTimer,
    graph: ChannelGraph,
    space: SearchSpace,
    setting: MeasurementConditions,
    plan: tuple[Sequence[Structure], Sequence[Structure]],
    file: Path | None = None,
    verbose: bool = False,
) -> LatencyTable:
    """A table from a bench: the structures of a plan that the log does not hold yet are measured, in order."""
    asked = json.loads(
        json.dumps([asdict(setting), space.names, space.choices, [list(map(list, part)) for part in plan]])
    )
    log = _Log(file, asked)
    structures = [*plan[0], *plan[1]]
    progress = Progress("structures", len(structures), len(log.found), verbose)
    for structure in structures[len(log.found) :]:
        log.add(bench(structure))
        progress.step()
    used, kept_out = tuple(log.found[: len(plan[0])]), tuple(log.found[len(plan[0]) :])
    table = LatencyTable(graph.model, setting, space.names, space.choices, bench.pieces, used, kept_out)
    if file is not None:
        table.save(file)
    return table


class _Log:
    """The measurements so far, on disk if there is a file: `table.json` has `table.json.log` beside it."""

    def __init__(self, file: Path | None, asked: Any) -> None:
        self._folder = None if file is None else RunFolder(file.parent)
        self._name = "" if file is None else f"{file.name}.log"
        records = self._folder.read_log(self._name) if self._folder else []
        if records and records[0] != asked:
            raise RunMismatch(
                f"{self._name} holds measurements of another network, space or setting. Remove it, or choose another "
                "file for the table."
            )
        if self._folder and not records:
            self._folder.append(self._name, asked)
        self.found = [TimedStructure.from_json(record) for record in records[1:]]

    def add(self, measured: TimedStructure) -> None:
        self.found.append(measured)
        if self._folder:
            self._folder.append(self._name, asdict(measured))
