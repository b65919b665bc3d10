"""Believing: what a run takes from its folder instead of computing it again, after it was verified.

The manifest tells whether a file is the one that was written. What it holds is compared with the graph and the limits
as well, since a folder of an older version has no manifest.
"""

from __future__ import annotations

import numpy as np

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.cost.budget import Budget, is_within
from aacp.cost.kinds import COSTS, LATENCY, computed_costs
from aacp.errors import AACPError, InvalidStructure, RunMismatch
from aacp.runs.chosen import ChosenStructure, LimitResult
from aacp.runs.files import CHECKPOINT, CONFIRMED, EVALUATION, FINALISTS, GRAPH, HISTORY, STRUCTURE
from aacp.runs.finalists import Finalists
from aacp.runs.folder import RunFolder
from aacp.runs.mending import mend, set_aside
from aacp.runs.scores import Evaluation, NetworkMetrics

# The folders of further searches inside a run folder.
SEARCHES = (CONFIRMED, "corrected-*", f"corrected-*/{CONFIRMED}", "probes/*", f"probes/*/{CONFIRMED}")
# What reading plain data of an unknown form may raise.
UNREADABLE = (AACPError, ValueError, LookupError, TypeError, AttributeError, AssertionError)


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


def believed_graph(folder: RunFolder) -> ChannelGraph | None:
    """The graph that a folder holds, or None if there is none that can be used."""
    try:
        known = folder.read_json(GRAPH)
        return None if known is None else ChannelGraph.from_json(known)
    except UNREADABLE as error:
        set_aside(folder, GRAPH, f"does not describe a graph ({error})")
        return None


def believed_choice(folder: RunFolder, graph: ChannelGraph, budget: Budget) -> ChosenStructure | None:
    """The structure that a finished search chose, or None if there is none that can be delivered.

    Args:
        folder: the run folder.
        graph: the channel graph of the network.
        budget: the limits of the request.
    """
    try:
        known = folder.read_json(STRUCTURE)
        if known is None:
            return None
        choice = ChosenStructure.from_json(known)
        require_valid(choice, graph, budget)
        return choice
    except UNREADABLE as error:
        set_aside(folder, STRUCTURE, f"cannot be delivered ({str(error).rstrip('.')})")
        return None


def believed_finalists(
    folder: RunFolder, graph: ChannelGraph, budget: Budget, rungs: tuple[int, ...]
) -> Finalists | None:
    """The finalists that a folder holds, with their scores so far; None if there are none that can be delivered.

    Args:
        folder: the run folder.
        graph: the channel graph of the network.
        budget: the limits of the request.
        rungs: the epochs of the rungs of the request.
    """
    try:
        known = folder.read_json(FINALISTS)
        if known is None:
            return None
        found = Finalists.from_json(known)
        for finalist in found.finalists:
            require_valid(finalist.choice, graph, budget)
        if not found.finalists or found.rungs != rungs:
            raise RunMismatch(f"It holds {len(found.finalists)} finalists in rungs of {found.rungs}. Train them again.")
        return found
    except UNREADABLE as error:
        set_aside(folder, FINALISTS, f"cannot be delivered ({str(error).rstrip('.')})")
        return None


def believed_evaluation(place: RunFolder, graph: ChannelGraph, choice: ChosenStructure) -> Evaluation | None:
    """The evaluation that the folder of a training holds, or None if there is none, or one of another network."""
    try:
        known = place.read_json(EVALUATION)
        if known is None:
            return None
        found = Evaluation.from_json(known)
        for metrics, structure in ((found.before, graph.full), (found.after, choice.structure)):
            require_costs(metrics, structure, graph)
        return found
    except UNREADABLE as error:
        set_aside(place, EVALUATION, f"is not the evaluation of this network ({str(error).rstrip('.')})")
        return None


def require_costs(metrics: NetworkMetrics, structure: Structure, graph: ChannelGraph) -> None:
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
        if name in COSTS and name != LATENCY and not limit.on(graph).holds(limit.on(graph).cost(counts)):
            raise InvalidStructure(f"It exceeds the limit on {name}: {limit.phrase}. Search again.")


def _require_recorded(result: LimitResult, structure: Structure, graph: ChannelGraph) -> None:
    """Reject costs beside a limit that are not those of the structure, or not within the limit.

    Latencies were measured, and the costs of the user may not be importable: these are only compared with the bound.
    """
    if result.cost in COSTS and result.cost != LATENCY:
        cost = COSTS[result.cost].on(graph)
        full = float(cost.full)
        reached = float(cost(np.asarray(structure)))
        if (full, reached) != (result.full, result.reached):
            raise InvalidStructure(
                f"It records {result.cost} of {result.full:,.6g} and {result.reached:,.6g}, but the graph gives "
                f"{full:,.6g} and {reached:,.6g}. Search again."
            )
        bound = result.at_most if result.pruning_rate is None else full * (1 - result.pruning_rate)
        if bound is None or not np.isclose(bound, result.bound):
            raise InvalidStructure(f"It records a bound of {result.bound:,.6g} on {result.cost}. Search again.")
    if not is_within(result.reached, result.bound):
        raise InvalidStructure(f"It exceeds a limit: {result}. Search again.")
