"""Latency stage: measures a table before the search and the best candidates after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import PruningStep, SearchSpace
from aacp.channels.structure import Structure
from aacp.cost.budget import SLOW_WIDTHS, Budget, Limit
from aacp.cost.kinds import LATENCY
from aacp.cost.reach import reachable
from aacp.errors import InfeasibleBudget, InvalidOption
from aacp.latency.check import LatencyCheck, Verdict, check_latency
from aacp.latency.measure import measure_latency
from aacp.latency.runtimes.runtime import INT8
from aacp.latency.steps import FoundSteps, discover_steps, kept_steps
from aacp.latency.table import LatencyTable
from aacp.latency.timing import MedianInterval
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.runs.chosen import LimitResult
from aacp.runs.files import CHECKS, STEPS, TABLE
from aacp.runs.folder import RunFolder
from aacp.user.progress import report_progress

# A limit is rejected before the table is measured if the smallest structure takes this many times the limit. It is
# more than 1 because a wider structure that suits the machine may be faster than the smallest one. In int8 a wider one
# may be faster by more than that.
REJECTED_RATIO = 1.25


def given_table(plan: Plan, model: nn.Module | None = None) -> LatencyTable | None:
    """The latency table that a plan names; it is rejected if it was not measured for the deployment of the plan.

    Args:
        plan: its latency table and deployment are used.
        model: the network; None if it is not loaded yet, and then the type of its numbers is not compared.
    """
    if plan.latency_table is None:
        return None
    table = LatencyTable.load(plan.latency_table)
    where = plan.deployment
    runtime = where.resolved_runtime
    if model is not None:
        precision = runtime.precision(model)
    elif where.is_quantized or table.conditions.precision == INT8:
        precision = where.precision
    else:
        precision = table.conditions.precision
    if table.elsewhere:
        table.conditions.require_deployment({**where.to_json(), "runtime": runtime.name, "precision": precision})
    else:
        table.conditions.require(where.conditions(precision))
    return table


@dataclass(frozen=True, eq=False)
class LatencyStage:
    """The latency measurements of one run or sweep, kept in files and not repeated when the run is resumed.

    Args:
        task: the network and its data.
        graph: the network's channel graph.
        plan: its pruning step, deployment and latency table are used.
        folder: where measurements are kept.
        needs_demand: whether a budget that the unpruned network already meets is rejected.
        tried: the structures and limits that this process has measured: those of an earlier process that were too
            noisy to tell are measured again.
    """

    task: PruningTask
    graph: ChannelGraph
    plan: Plan
    folder: RunFolder
    needs_demand: bool = False
    tried: set[tuple[Structure, str]] = field(default_factory=set)

    def find_steps(self) -> PruningStep:
        """The pruning step of the plan; for "auto" it is found by timing."""
        if self.plan.pruning_step != "auto":
            return self.plan.pruning_step
        if self.is_elsewhere:
            raise InvalidOption(
                "The step auto is found by timing here, but the latency table is of another device. Give a number as "
                "step, such as 8."
            )
        model, where = self.task.model, self.plan.deployment
        return kept_steps(
            self.folder,
            STEPS,
            self.graph,
            lambda: discover_steps(model, self.graph, where, example=self.task.example()),
        )

    @property
    def step_note(self) -> str:
        """A sentence about steps that timing did not decide, or could find in int8; "" if there is nothing to say."""
        steps = self.find_steps()
        if isinstance(steps, FoundSteps):
            return steps.note
        if not self.plan.deployment.is_quantized or not self._could_find_steps:
            return ""
        return f"fewer channels may make a network slower in int8: {SLOW_WIDTHS}"

    @property
    def _could_find_steps(self) -> bool:
        """Whether the step is one that "auto" could replace: steps by group may have been found by timing before."""
        is_chosen = self.plan.pruning_step == "auto" or isinstance(self.plan.pruning_step, Mapping)
        return not is_chosen and not self.is_elsewhere

    def within_reach(self, space: SearchSpace, budget: Budget) -> SearchSpace:
        """The part of a space in which a budget can be met: all of it, unless its smallest structure is too slow."""
        return reachable(space, budget, SLOW_WIDTHS if self._could_find_steps else "")

    def table_for(self, budget: Budget) -> LatencyTable | None:
        """The latency table that a budget needs, or None; an interrupted measurement is resumed."""
        if LATENCY not in (*self.plan.shrunk, *budget.costs):
            return None
        if self.plan.latency_table is not None:
            return self._given_table
        # A table holds for every structure of the groups, so it is measured without the ties of the search.
        space = SearchSpace(replace(self.graph, ties=()), self.find_steps())
        if not (self.folder.path / TABLE).exists():
            report_progress(f"{self.folder.path}: measuring the latency table for the search")
            self._require_within_reach(budget, space)
        return measure_latency(
            self.task.model, self.graph, space, self.plan.deployment,
            example=self.task.example(), file=self.folder.path / TABLE, seed=self.plan.seed,
        )  # fmt: skip

    @property
    def is_elsewhere(self) -> bool:
        """Whether the latency table of the plan was measured on a device that is not here."""
        return self._given_table is not None and self._given_table.elsewhere

    @cached_property
    def _given_table(self) -> LatencyTable | None:
        """The latency table that the plan names, if it names one."""
        table = given_table(self.plan, self.task.model)
        if table is not None:
            table.require_decisive()
        return table

    def _require_within_reach(self, budget: Budget, space: SearchSpace) -> None:
        """Reject limits that the smallest structure clearly misses or the unpruned one meets, before long measuring."""
        others = budget.without(LATENCY).on(self.graph)
        others.check(space)
        limit = budget.limit_on(LATENCY)
        if limit is None or self.plan.deployment.is_quantized:
            return
        (smallest,) = self._measure([space.smallest])
        if smallest.share_of(limit).lower > REJECTED_RATIO:
            raise InfeasibleBudget(
                f"{LATENCY}: {limit.phrase} cannot be met, since the smallest structure in this space takes "
                f"{smallest}. {smallest.remedy}, or use a finer pruning step."
            )
        unpruned = LatencyCheck(self.graph.full, smallest.original, MedianInterval(1, 1, 1), smallest.original)
        is_met = unpruned.verdict(limit) is Verdict.MET and bool(others.feasible(self.graph.full.counts))
        if self.needs_demand and is_met:
            raise without_demand(budget)

    def check(self, structures: Sequence[Structure], limit: Limit) -> list[LatencyCheck]:
        """Measure structures from end to end, in alternation with the unpruned network, until a limit is decided."""
        recorded = {checked.structure: checked for checked in map(_from_json, self.folder.read_log(CHECKS))}
        known = {
            structure: checked
            for structure, checked in recorded.items()
            if (structure, limit.phrase) in self.tried or checked.verdict(limit) is not Verdict.UNDECIDED
        }
        new = [structure for structure in structures if structure not in known]
        for checked in self._measure(new, limit):
            self.folder.append(CHECKS, _to_json(checked))
            self.tried.add((checked.structure, limit.phrase))
            known[checked.structure] = checked
        return [known[structure] for structure in structures]

    def _measure(self, structures: Sequence[Structure], limit: Limit | None = None) -> list[LatencyCheck]:
        if not structures:
            return []
        example = self.task.example()
        where = self.plan.deployment
        return check_latency(self.task.model, self.graph, structures, where, example=example, limit=limit)


def without_demand(budget: Budget) -> InvalidOption:
    """The error for a budget that the unpruned network meets."""
    return InvalidOption(
        f"The unpruned network already meets {budget}, so there is nothing to remove. Give tighter limits."
    )


def _to_json(checked: LatencyCheck) -> dict[str, Any]:
    measured = {"seconds": checked.seconds, "ratio": checked.ratio, "original": checked.original}
    return {"counts": list(checked.structure), **{name: value.to_json() for name, value in measured.items()}}


def _from_json(data: Mapping[str, Any]) -> LatencyCheck:
    seconds = MedianInterval(**data["seconds"])
    ratio = MedianInterval(**data["ratio"])
    # Older versions did not record the original's seconds.
    original = MedianInterval(**data["original"]) if "original" in data else seconds.scaled(1 / ratio.median)
    return LatencyCheck(Structure(data["counts"]), seconds, ratio, original)


def seconds_of_table(limit: Limit, checked: LatencyCheck, table: LatencyTable) -> MedianInterval:
    """The measurements in seconds; for a pruning rate, relative to the table's value for the unpruned network."""
    if limit.at_most is not None:
        return checked.seconds
    return checked.ratio.scaled(table.reference)


def measured_result(result: LimitResult, limit: Limit, checked: LatencyCheck) -> LimitResult:
    """The result of a limit on latency by the measurement of both networks in the same turns, without the table."""
    full = checked.original.median
    result = replace(result, full=full, measured=True, table_problem="")
    if limit.pruning_rate is None:
        return replace(result, reached=checked.seconds.median)
    # The ratio of each turn decides, so that it is also what is shown.
    return replace(result, bound=(1 - limit.pruning_rate) * full, reached=checked.ratio.median * full)
