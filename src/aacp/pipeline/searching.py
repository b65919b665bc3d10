"""Searching, as a stage of a run: within limits, with what earlier runs of the network have found."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from aacp.channels import ChannelGraph
from aacp.cost.budget import Budget
from aacp.errors import InfeasibleBudget, InvalidOption, RunMismatch
from aacp.estimate.psae import PSAE
from aacp.latency.check import LatencyCheck
from aacp.latency.table import LatencyTable
from aacp.pipeline.latency_stage import TABLE, LatencyStage, holds, latency_limit, seconds
from aacp.pipeline.plan import Plan
from aacp.pipeline.request import ESTIMATE, read_request, request_of, require_same
from aacp.pipeline.targets import LATENCY, budget_of
from aacp.pipeline.task import PruningTask
from aacp.runs.files import ChosenStructure, LimitResult, Target
from aacp.runs.folder import RunFolder
from aacp.search.history import Candidate, History
from aacp.search.loop import SearchResult, recorded, run_search
from aacp.search.methods import searcher
from aacp.space import SearchSpace

MEASURED = 3  # candidates measured after a search
TURNS = 8  # of measuring and correcting, at most
SHORTEST = 20  # evaluations of a search that goes on
CORRECTED = "corrected"  # folders of searches that went on, numbered


@dataclass(frozen=True, eq=False)
class Search:
    """The search for a structure: of what, within which limits, how, and where it is written down."""

    subject: PruningTask
    graph: ChannelGraph
    limits: tuple[Target, ...]
    plan: Plan
    folder: RunFolder
    known: History
    clock: LatencyStage
    table: LatencyTable | None = None  # for a limit on latency
    verbose: bool = False

    @cached_property
    def space(self) -> SearchSpace:
        return SearchSpace(self.graph, self.clock.steps())

    @cached_property
    def budget(self) -> Budget:
        return budget_of(self.limits, self.graph, self.table)

    def require_demand(self) -> None:
        """Refuse limits that ask for nothing."""
        limits = self.budget.limits
        if self.plan.max_drop is None and all(limit.holds(limit.cost.full) for limit in limits):
            raise InvalidOption(
                f"The unpruned network keeps to {self.budget} as it is, so that there is nothing to remove. Ask for "
                "less than it has."
            )

    def run(self, estimate: PSAE) -> tuple[ChosenStructure, History]:
        """The structure to deliver, and all that was evaluated; a search that was stopped goes on."""
        limit = latency_limit(self.limits)
        found = self._once(estimate)
        if limit is not None:
            return self._truly_met(limit, found, estimate)
        better = better_known(self.known, self.budget, self.space, found.best)
        return choice_of(better or found.recommended, self.budget), found.history

    def _once(self, estimate: PSAE) -> SearchResult:
        method = searcher(self.plan.method, self.space, self.budget, self.plan.seed, known=self.known)
        found = run_search(
            method, estimate, evaluations=self.plan.evaluations, folder=self.folder, verbose=self.verbose
        )
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        return found

    def _truly_met(self, limit: Target, found: SearchResult, estimate: PSAE) -> tuple[ChosenStructure, History]:
        """The best candidate that meets the limit where it is to run, however long it takes to find one.

        The best few are measured from end to end. If all of them take longer than they may, the table is corrected by
        what three of four measurements of each stayed below, written down, and a shorter search goes on from all that
        is known. A run that was stopped begins with the table as it was, and corrects it by the same measurements.
        """
        search, histories = self, [found.history]
        for turn in range(1, TURNS + 1):
            candidates = self._best(found)
            checks = self.clock.checked([candidate.structure for candidate in candidates])
            for candidate, checked in zip(candidates, checks, strict=True):
                self._say(candidate, checked, limit)
                if holds(limit, checked):
                    return search._measured_choice(candidate, checked), History.merged(histories)
            if turn == TURNS:
                break
            corrected = search._corrected(limit, checks)
            corrected.save(self.folder.path / TABLE)
            search = replace(
                self,
                table=corrected,
                plan=replace(self.plan, evaluations=max(SHORTEST, self.plan.evaluations // 4)),
                folder=RunFolder(self.folder.path / f"{CORRECTED}-{turn}"),
                known=History.merged([self.known, *histories]),
            )
            found = search._once(estimate)
            histories.append(found.history)
        raise InfeasibleBudget(
            f"{limit.cost}: none of {TURNS * MEASURED} candidates that the table said would meet the limit did so when "
            f"measured; the last took {checks[0]}. Loosen the limit, or measure on a machine with less else to do."
        )

    def _corrected(self, limit: Target, checks: list[LatencyCheck]) -> LatencyTable:
        """The table of this search, believing what was measured."""
        assert self.table is not None
        uppers = [seconds(limit, checked, self.table).upper for checked in checks]
        return self.table.corrected(self.graph, [each.structure for each in checks], uppers)

    def _best(self, found: SearchResult) -> list[Candidate]:
        """What the search recommends, and the best beside it."""
        others = [candidate for candidate in found.history.top(MEASURED) if candidate != found.recommended]
        return [found.recommended, *others][:MEASURED]

    def _measured_choice(self, candidate: Candidate, checked: LatencyCheck) -> ChosenStructure:
        """A candidate to deliver, with the latency that was measured."""
        choice = choice_of(candidate, self.budget)
        assert self.table is not None
        limits = [
            replace(each, reached=seconds(asked, checked, self.table).median) if asked.cost == LATENCY else each
            for asked, each in zip(self.limits, choice.limits, strict=True)
        ]
        return replace(choice, limits=tuple(limits))

    def _say(self, candidate: Candidate, checked: LatencyCheck, limit: Target) -> None:
        if self.verbose:
            verdict = "within the limit" if holds(limit, checked) else "over the limit"
            sys.stderr.write(f"number {candidate.number}, score {candidate.score:.4f}: {checked}, {verdict}\n")


def choice_of(candidate: Candidate, budget: Budget) -> ChosenStructure:
    """A candidate to deliver, with what each limit makes of it."""
    limits = tuple(LimitResult.of(limit, candidate.structure) for limit in budget.limits)
    return ChosenStructure(candidate.structure.counts, candidate.score, limits)


def better_known(known: History, budget: Budget, space: SearchSpace, best: Candidate) -> Candidate | None:
    """What other searches of the network evaluated, if it scores higher than all that this one did within a budget."""
    found = History(candidate for candidate in known if candidate.structure in space).rebudget(budget)
    return found if found is not None and found.score > best.score else None


def remembering(estimate: PSAE, known: History) -> PSAE:
    """An estimate that need not work out again what is known."""
    estimate.scores.update({candidate.structure.counts: candidate.score for candidate in known})
    return estimate


def known_of(folders: Sequence[str], subject: PruningTask, plan: Plan, graph: ChannelGraph) -> History:
    """Everything that earlier runs of the same network evaluated, with the same data and the same way to estimate."""
    if not folders:
        return History()
    asked, histories = request_of(subject, (), plan), []
    for path in folders:
        if not Path(path).is_dir():
            raise RunMismatch(f"There is no folder {path} to take evaluations from. Give the folder of a run.")
        folder = RunFolder(path)
        require_same(folder, read_request(folder), asked, ESTIMATE, "Scores can only be taken over from like to like.")
        histories.append(recorded(folder))
        for candidate in histories[-1]:
            graph.lane_sizes(np.asarray(candidate.structure))  # refuses what is not of this graph
    return History.merged(histories)
