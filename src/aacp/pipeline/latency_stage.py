"""Clock: latency as a stage of a run: a table before the search, and measurements that no search can talk away."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aacp.channels import ChannelGraph
from aacp.errors import InfeasibleBudget
from aacp.latency.check import LatencyCheck, check_latency
from aacp.latency.deployment import conditions_here
from aacp.latency.measure import measure_latency
from aacp.latency.steps import discover_steps
from aacp.latency.table import LatencyTable
from aacp.latency.timing import Quartiles
from aacp.pipeline.plan import Plan
from aacp.pipeline.targets import LATENCY, budget_of, in_words
from aacp.pipeline.task import PruningTask
from aacp.runs.files import Target
from aacp.runs.folder import RunFolder
from aacp.space import PruningStep, SearchSpace
from aacp.structure import Structure

TABLE, STEPS, CHECKS = "latency.json", "steps.json", "checks.jsonl"
HOPELESS = 1.25  # times the limit, taken by the smallest structure: a wider one that suits the machine may be faster


@dataclass(frozen=True, eq=False)
class LatencyStage:
    """What is measured of one network where it is to run; everything measured is kept, and not measured again."""

    subject: PruningTask
    graph: ChannelGraph
    plan: Plan
    folder: RunFolder
    verbose: bool = False

    def steps(self) -> PruningStep:
        """The pruning step of the plan, found by timing if that was asked for."""
        if self.plan.pruning_step != "auto":
            return self.plan.pruning_step
        known = self.folder.read_json(STEPS)
        if known is None:
            known = discover_steps(
                self.subject.model, self.graph, self.plan.deployment, example=self.subject.example(),
                verbose=self.verbose,
            )  # fmt: skip
            self.folder.write_json(STEPS, known)
        steps: dict[str, int] = known
        return steps

    def table_for(self, limits: Sequence[Target]) -> LatencyTable | None:
        """What the structures of the space take, if a limit needs it; a measurement that was stopped goes on."""
        if LATENCY not in (*self.plan.shrunk, *(limit.cost for limit in limits)):
            return None
        if self.plan.latency_table is not None:
            return LatencyTable.load(self.plan.latency_table, conditions_here(self.subject.model, self.plan.deployment))
        space = SearchSpace(self.graph, self.steps())
        if not (self.folder.path / TABLE).exists():
            if self.verbose:
                sys.stderr.write(f"{self.folder.path}: measuring what structures take, to search with\n")
            self._require_within_reach(limits, space)
        return measure_latency(
            self.subject.model, self.graph, space, self.plan.deployment,
            example=self.subject.example(), file=self.folder.path / TABLE, seed=self.plan.seed, verbose=self.verbose,
        )  # fmt: skip

    def _require_within_reach(self, limits: Sequence[Target], space: SearchSpace) -> None:
        """Refuse, before minutes of measuring, limits that the smallest structure is far from."""
        budget_of(tuple(limit for limit in limits if limit.cost != LATENCY), self.graph).check(space)
        limit = latency_limit(limits)
        if limit is None:
            return
        (smallest,) = self._measured([space.smallest])
        if _of_limit(limit, smallest).median > HOPELESS:
            raise InfeasibleBudget(
                f"{LATENCY}: {in_words(limit)} was asked for, but the smallest structure in this space takes "
                f"{smallest}. Loosen the limit, or use a finer pruning step."
            )

    def checked(self, structures: Sequence[Structure]) -> list[LatencyCheck]:
        """Structures measured from end to end, in turns with the unpruned network."""
        known = {checked.structure: checked for checked in map(_from_json, self.folder.read_log(CHECKS))}
        new = [structure for structure in structures if structure not in known]
        for checked in self._measured(new):
            self.folder.append(CHECKS, _to_json(checked))
            known[checked.structure] = checked
        return [known[structure] for structure in structures]

    def _measured(self, structures: Sequence[Structure]) -> list[LatencyCheck]:
        if not structures:
            return []
        example = self.subject.example()
        return check_latency(self.subject.model, self.graph, structures, self.plan.deployment, example=example)


def _to_json(checked: LatencyCheck) -> dict[str, Any]:
    counts = list(checked.structure)
    return {"counts": counts, "seconds": checked.seconds.to_json(), "ratio": checked.ratio.to_json()}


def _from_json(data: Mapping[str, Any]) -> LatencyCheck:
    return LatencyCheck(Structure(data["counts"]), Quartiles(**data["seconds"]), Quartiles(**data["ratio"]))


def holds(limit: Target, checked: LatencyCheck) -> bool:
    """Whether three of four measurements are within a limit."""
    return _of_limit(limit, checked).upper <= 1


def _of_limit(limit: Target, checked: LatencyCheck) -> Quartiles:
    """What was measured, in shares of a limit."""
    if limit.at_most is not None:
        return checked.seconds.scaled(1 / limit.at_most)
    assert limit.pruning_rate is not None
    return checked.ratio.scaled(1 / (1 - limit.pruning_rate))


def seconds(limit: Target, checked: LatencyCheck, table: LatencyTable) -> Quartiles:
    """What was measured; for a rate, as a share of what the table has for the unpruned network."""
    if limit.at_most is not None:
        return checked.seconds
    return checked.ratio.scaled(table.reference)


def latency_limit(limits: Sequence[Target]) -> Target | None:
    return next((limit for limit in limits if limit.cost == LATENCY), None)
