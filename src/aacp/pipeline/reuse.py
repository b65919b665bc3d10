"""Reuse: what a run takes from its folder instead of computing it again, after it was verified.

The manifest shows whether a file is the one that was written. What it holds is compared with the graph and the limits
as well, since a folder of an older version has no manifest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget, Limit, is_within
from aacp.cost.kinds import COSTS, LATENCY, computed_costs
from aacp.errors import InvalidStructure, RunMismatch
from aacp.runs.chosen import ChosenStructure, LimitResult
from aacp.runs.files import CHECKPOINT, CONFIRMED, CORRECTED, EVALUATION, FINALISTS, GRAPH, HISTORY, PROBES, STRUCTURE
from aacp.runs.finalists import Finalists
from aacp.runs.folder import UNREADABLE, RunFolder
from aacp.runs.mending import mend, set_aside
from aacp.runs.scores import Evaluation, NetworkMetrics

T = TypeVar("T")
# The folders of further searches inside that of a search, and inside a run folder.
FURTHER = (CONFIRMED, f"{CORRECTED}-*", f"{CORRECTED}-*/{CONFIRMED}")
SEARCHES = (*FURTHER, f"{PROBES}/*", *(f"{PROBES}/*/{further}" for further in FURTHER))


def mend_search(folder: RunFolder) -> bool:
    """Mend a run folder and the searches inside it; True if evaluations of any of them are lost."""
    lost = [mend(place) for place in _searches(folder)]
    return any({HISTORY, CHECKPOINT} & names for names in lost)


def list_histories(folder: RunFolder) -> None:
    """List the histories of a run as they are, after lost evaluations were repeated."""
    for place in _searches(folder):
        place.listing.add(HISTORY)


def _searches(folder: RunFolder) -> list[RunFolder]:
    """A run folder, and the folders of further searches inside it."""
    inside = [path for pattern in SEARCHES for path in sorted(folder.path.glob(pattern)) if path.is_dir()]
    return [folder, *map(RunFolder, inside)]


def usable(folder: RunFolder, name: str, read: Callable[[Any], T], problem: str) -> T | None:
    """What a file of a folder holds, or None if there is no such file. A file that cannot be used is set aside.

    Args:
        folder: the folder.
        name: the name of the file, which holds JSON.
        read: makes the value of what the file holds, and raises an error if it cannot be used.
        problem: what is wrong with a file that `read` rejects, such as "does not describe a graph".
    """
    try:
        return folder.read(name, read)
    except UNREADABLE as error:
        set_aside(folder, name, f"{problem} ({str(error).rstrip('.')})")
        return None


def usable_graph(folder: RunFolder) -> ChannelGraph | None:
    """The graph that a folder holds, or None if there is none that can be used."""
    return usable(folder, GRAPH, ChannelGraph.from_json, "does not describe a graph")


def usable_choice(folder: RunFolder, graph: ChannelGraph, budget: Budget) -> ChosenStructure | None:
    """The structure that a finished search chose, or None if there is none that can be delivered."""

    def read(known: Any) -> ChosenStructure:
        choice = ChosenStructure.from_json(known)
        require_valid(choice, graph, budget)
        return choice

    return usable(folder, STRUCTURE, read, "cannot be delivered")


def usable_finalists(
    folder: RunFolder, graph: ChannelGraph, budget: Budget, rungs: tuple[int, ...]
) -> Finalists | None:
    """The finalists that a folder holds, with their scores so far; None if there are none that can be delivered."""

    def read(known: Any) -> Finalists:
        found = Finalists.from_json(known)
        for finalist in found.finalists:
            require_valid(finalist.choice, graph, budget)
        if not found.finalists or found.rungs != rungs:
            raise RunMismatch(f"It holds {len(found.finalists)} finalists in rungs of {found.rungs}. Train them again.")
        return found

    return usable(folder, FINALISTS, read, "cannot be delivered")


def usable_evaluation(place: RunFolder, graph: ChannelGraph, choice: ChosenStructure) -> Evaluation | None:
    """The evaluation that the folder of a training holds, or None if there is none, or one of another network."""

    def read(known: Any) -> Evaluation:
        found = Evaluation.from_json(known)
        require_evaluated(found, choice.structure, graph)
        return found

    return usable(place, EVALUATION, read, "is not the evaluation of this network")


def require_evaluated(found: Evaluation, structure: Structure, graph: ChannelGraph) -> None:
    """Reject the evaluation of another network than the one cut to the structure, or of another original."""
    _require_costs(found.before, graph.full, graph)
    _require_costs(found.after, structure, graph)


def _require_costs(metrics: NetworkMetrics, structure: Structure, graph: ChannelGraph) -> None:
    """Reject recorded costs that are not those of the structure."""
    for cost in computed_costs(graph):
        found = metrics.costs.get(cost.name)
        right = float(cost(np.asarray(structure)))
        if found is not None and not np.isclose(found, right):
            raise InvalidStructure(f"It records {cost.name} of {found:,.6g} instead of {right:,.6g}. Evaluate again.")


def require_valid(choice: ChosenStructure, graph: ChannelGraph, budget: Budget) -> None:
    """Reject a choice that the graph does not allow, exceeds a limit, or records costs that it does not have."""
    counts = np.asarray(choice.structure)
    graph.valid_counts(counts)
    for result in choice.limits:
        _require_recorded(result, choice.structure, graph)
    for limit in budget.limits:
        name = limit.cost.name
        if name in COSTS and name != LATENCY and not Budget(limit.on(graph)).feasible(counts):
            raise InvalidStructure(f"It exceeds the limit on {name}: {limit.phrase}. Search again.")


def _require_recorded(result: LimitResult, structure: Structure, graph: ChannelGraph) -> None:
    """Reject costs beside a limit that are not those of the structure, or not within the limit.

    Latencies were measured, and the costs of the user may not be importable: these are only compared with the bound.
    """
    if result.cost in COSTS and result.cost != LATENCY:
        right = LimitResult.of(Limit(result.cost, result.pruning_rate, result.at_most).on(graph), structure)
        if (result.full, result.reached) != (right.full, right.reached) or not np.isclose(result.bound, right.bound):
            raise InvalidStructure(f"It records {result}, but the graph gives {right}. Search again.")
    if not is_within(result.reached, result.bound):
        raise InvalidStructure(f"It exceeds a limit: {result}. Search again.")
