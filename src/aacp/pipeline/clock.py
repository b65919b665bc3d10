"""Clock: latency as a stage of a run: a table before the search, and measurements that no search can talk away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aacp.channels import ChannelGraph
from aacp.cost.latency import LatencyTable
from aacp.folder import RunFolder
from aacp.latency.checking import Checked, check_latency
from aacp.latency.measuring import measure_latency
from aacp.latency.stepping import discovered_steps
from aacp.pipeline.plan import Plan
from aacp.pipeline.subject import Subject
from aacp.pipeline.targets import LATENCY
from aacp.records import Target
from aacp.space import PruningStep, SearchSpace
from aacp.structure import Structure
from aacp.timing import Spread

TABLE, STEPS, CHECKS = "latency.json", "steps.json", "checks.jsonl"


@dataclass(frozen=True, eq=False)
class Clock:
    """What is measured of one network where it is to run; everything measured is kept, and not measured again."""

    subject: Subject
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
            known = discovered_steps(
                self.subject.model, self.graph, example=self.subject.example(), verbose=self.verbose, **self._where
            )
            self.folder.write_json(STEPS, known)
        steps: dict[str, int] = known
        return steps

    def table_for(self, limits: Sequence[Target]) -> LatencyTable | None:
        """What the structures of the space take, if a limit needs it; a measurement that was stopped goes on."""
        if LATENCY not in {self.plan.shrink, *(limit.cost for limit in limits)}:
            return None
        space = SearchSpace(self.graph, self.steps())
        return measure_latency(
            self.subject.model, self.graph, space, example=self.subject.example(), file=self.folder.path / TABLE,
            seed=self.plan.seed, verbose=self.verbose, **self._where,
        )  # fmt: skip

    def checked(self, structures: Sequence[Structure]) -> list[Checked]:
        """Structures measured from end to end, in turns with the unpruned network."""
        known = {tuple(record["counts"]): record for record in self.folder.read_log(CHECKS)}
        new = [structure for structure in structures if structure.counts not in known]
        for found in check_latency(
            self.subject.model, self.graph, new, example=self.subject.example(), **self._where
        ) if new else []:
            record = {
                "counts": list(found.structure), "seconds": asdict(found.seconds), "ratio": asdict(found.ratio)
            }  # fmt: skip
            self.folder.append(CHECKS, record)
            known[found.structure.counts] = record
        return [
            Checked(structure, *(Spread(**known[structure.counts][name]) for name in ("seconds", "ratio")))
            for structure in structures
        ]

    @property
    def _where(self) -> dict[str, Any]:
        return asdict(self.plan.deployment)


def holds(limit: Target, checked: Checked) -> bool:
    """Whether three of four measurements are within a limit."""
    if limit.at_most is not None:
        return checked.seconds.upper <= limit.at_most
    assert limit.pruning_rate is not None
    return checked.ratio.upper <= 1 - limit.pruning_rate


def reached(limit: Target, checked: Checked, table: LatencyTable) -> float:
    """What was measured, in seconds: for a rate, of the unpruned network's in the table."""
    return checked.seconds.median if limit.at_most is not None else checked.ratio.median * table.reference


def latency_limit(limits: Sequence[Target]) -> Target | None:
    return next((limit for limit in limits if limit.cost == LATENCY), None)
