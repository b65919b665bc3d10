"""Which structures of a search become finalists: its choice, the best that differ from it, and the uniform one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import PruningStep, SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.analytic import Cost
from aacp.cost.budget import Budget, Limit
from aacp.errors import InfeasibleBudget
from aacp.graph.tracing import residual_streams
from aacp.pipeline.searching import Search
from aacp.runs.chosen import ChosenStructure
from aacp.runs.finalists import Finalist, Finalists
from aacp.search.history import Candidate, History
from aacp.search.methods import searcher
from aacp.user.values import counted

APART = 0.05  # the share of all units in which finalists differ, if the search has enough such structures
CUTS_STREAMS = "The uniform structure cuts residual streams too, since the limits cannot be met without that."
NO_UNIFORM = "The uniform structure is left out, since no measurement shows that it meets the limit on latency."


def chosen_finalists(search: Search, chosen: ChosenStructure, history: History) -> Finalists:
    """The finalists of a finished search: as many as the plan says, or fewer if the search has fewer.

    Args:
        search: the search, with the latency table that its measurements have corrected.
        chosen: its choice, which is the first finalist.
        history: all its evaluations.
    """
    wanted = search.plan.finalists
    assert wanted is not None
    uniform, notes = _uniform(search)
    scored = history.whole
    within = scored.within(search.bound_budget)
    others = [each for each in within if each.structure not in (chosen.structure, uniform)]
    places = wanted - 1 if uniform == chosen.structure else wanted - 2
    found = [Finalist(chosen, is_uniform=uniform == chosen.structure)]
    widths = sum(group.width for group in search.graph.free)
    different = best_apart(chosen.structure, others, places, APART * widths)
    found += [Finalist(choice) for choice in search.choices(different)]
    if uniform != chosen.structure:
        known = scored.find(uniform) or Candidate(len(history), 0, uniform, search.estimate(uniform))
        delivered = search.choices([known])
        found += [Finalist(choice, is_uniform=True) for choice in delivered]
        notes += [] if delivered else [NO_UNIFORM]
    if len(found) < wanted:
        notes.append(
            f"There is no more than {counted(len(found), 'finalist')} instead of {wanted}: the search has no other "
            "structures that are known to be within the limits."
        )
    return Finalists(search.plan.chosen_rungs, tuple(found), tuple(notes))


def _uniform(search: Search) -> tuple[Structure, list[str]]:
    """The structure of the method "uniform" within the limits, and what has to be said about it.

    As in that method, residual streams keep their widths, if the limits can be met without cutting them.
    """
    streams = residual_streams(search.task.model, search.graph, search.task.example())
    inner = search.graph.freeze(dict.fromkeys(streams, "residual stream"))
    if inner.free:
        try:
            found = _widened(_shrunk(search, inner), inner, search.graph)
            if found in search.whole_space:  # unless a stream is tied to another group
                return found, []
        except InfeasibleBudget:
            pass
    return _shrunk(search, search.graph), [CUTS_STREAMS]


def _shrunk(search: Search, graph: ChannelGraph) -> Structure:
    """Uniform widths of the free groups of a graph."""
    space = SearchSpace(graph, _steps_of(graph, search.graph, search.latency.find_steps()))
    limits = (_in_part(limit, graph, search.graph) for limit in search.budget.limits)
    budget = Budget(*limits).on(graph, search.table)
    (found,) = searcher("uniform", search.latency.within_reach(space, budget), budget, search.plan.seed).ask()
    return found


def _in_part(limit: Limit, graph: ChannelGraph, whole: ChannelGraph) -> Limit:
    """A limit on a graph in which more groups are frozen; costs of the user take structures of the whole graph."""
    cost = limit.cost
    if not isinstance(cost, Cost):
        return limit

    def rows(kept: NDArray[np.int64]) -> NDArray[np.float64]:
        return np.asarray(cost([_widened(Structure(row), graph, whole).counts for row in kept.tolist()]))

    return replace(limit, cost=Cost(cost.name, cost.unit, cost.full, rows, cost.source))


def best_apart(first: Structure, ranked: Sequence[Candidate], count: int, units: float) -> list[Candidate]:
    """The best candidates that differ enough from each other and from a structure.

    The best candidates of a search are nearly the same, so a comparison of them by training tells little. A candidate
    is taken if it differs in at least `units` units, summed over all groups, from each one taken before it. If fewer
    than `count` candidates do, the number of units is halved.

    Args:
        first: the structure that is taken before the candidates.
        ranked: the candidates, best first, each structure once.
        count: how many to take, or all if there are fewer.
        units: the number of units.
    """
    if len(ranked) <= count:
        return list(ranked)
    counts = np.array([candidate.structure.counts for candidate in ranked])
    nearest = np.abs(counts - first.counts).sum(axis=1)  # to the structures that are taken
    taken: list[int] = []
    while len(taken) < count and (nearest >= units).any():
        best = int(np.argmax(nearest >= units))
        taken.append(best)
        nearest = np.minimum(nearest, np.abs(counts - counts[best]).sum(axis=1))
    if len(taken) < count:
        return best_apart(first, ranked, count, units / 2)
    return [ranked[position] for position in taken]


def _steps_of(graph: ChannelGraph, whole: ChannelGraph, steps: PruningStep) -> PruningStep:
    """The pruning steps of the groups that are free in a graph, of steps for all groups that are free in `whole`."""
    free = {group.name for group in graph.free}
    if isinstance(steps, Mapping):
        return {name: step for name, step in steps.items() if name in free}
    if isinstance(steps, Sequence):
        return [step for group, step in zip(whole.free, steps, strict=True) if group.name in free]
    return steps


def _widened(structure: Structure, graph: ChannelGraph, whole: ChannelGraph) -> Structure:
    """The structure of `whole` in which the groups that are frozen in `graph` keep their full widths."""
    kept = {group.name: count for group, count in zip(graph.free, structure, strict=True)}
    return Structure([kept.get(group.name, group.width) for group in whole.free])
