"""Searching, as a stage of a run: within limits, with what earlier runs of the network have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from aacp.channels import ChannelGraph
from aacp.cost.budget import Budget
from aacp.errors import RunMismatch
from aacp.estimate.psae import PSAE
from aacp.folder import RunFolder
from aacp.pipeline.plan import Plan
from aacp.pipeline.request import ESTIMATE, read_request, request_of, require_same
from aacp.pipeline.subject import Subject
from aacp.pipeline.targets import budget_of
from aacp.records import Choice, Reached, Target
from aacp.search.history import Candidate, History
from aacp.search.loop import HISTORY, run_search
from aacp.search.methods import searcher
from aacp.space import SearchSpace


@dataclass(frozen=True, eq=False)
class Search:
    """The search for a structure: of what, within which limits, how, and where it is written down."""

    subject: Subject
    graph: ChannelGraph
    limits: tuple[Target, ...]
    plan: Plan
    folder: RunFolder
    known: History
    verbose: bool = False

    def run(self, estimate: PSAE) -> tuple[Choice, History]:
        """The structure the search ends with, and all that was evaluated; one that was stopped goes on."""
        budget = budget_of(self.limits, self.graph)
        plan, space = self.plan, SearchSpace(self.graph, self.plan.pruning_step)
        method = searcher(plan.method, space, budget, plan.seed, known=self.known)
        found = run_search(method, estimate, evaluations=plan.evaluations, folder=self.folder, verbose=self.verbose)
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        return choice_of(found.recommended, budget), found.history


def remembering(estimate: PSAE, known: History) -> PSAE:
    """An estimate that need not work out again what is known."""
    estimate.scores.update({candidate.structure.counts: candidate.score for candidate in known})
    return estimate


def choice_of(candidate: Candidate, budget: Budget) -> Choice:
    """A candidate as the structure to deliver, with what each limit makes of it."""
    limits = tuple(Reached.of(limit, candidate.structure) for limit in budget.limits)
    return Choice(candidate.structure.counts, candidate.score, limits)


def known_of(folders: Sequence[str], subject: Subject, plan: Plan, graph: ChannelGraph) -> History:
    """Everything that earlier runs of the same network evaluated, with the same data and the same way to estimate."""
    if not folders:
        return History()
    asked, histories = request_of(subject, (), plan), []
    for path in folders:
        if not Path(path).is_dir():
            raise RunMismatch(f"There is no folder {path} to take evaluations from. Give the folder of a run.")
        folder = RunFolder(path)
        require_same(folder, read_request(folder), asked, ESTIMATE, "Scores can only be taken over from like to like.")
        candidates = [Candidate.from_json(record) for record in folder.read_log(HISTORY)]
        for candidate in candidates:
            graph.lane_sizes(np.asarray(candidate.structure))  # refuses what is not of this graph
        histories.append(History(candidates))
    return History.merged(histories)
