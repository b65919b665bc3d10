"""MaxDropSearch: the smallest network whose score stays within a drop."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aacp.cost.budget import Budget, Limit
from aacp.cost.kinds import COSTS, LATENCY
from aacp.cost.reach import fastest
from aacp.errors import InfeasibleBudget
from aacp.pipeline.recovery import Recovering
from aacp.pipeline.searching import Search
from aacp.runs.chosen import ChosenStructure
from aacp.runs.files import PROBES, TRAINING
from aacp.runs.folder import RunFolder
from aacp.runs.scores import is_within_drop
from aacp.search.history import History
from aacp.train.loop import finetune
from aacp.user.progress import report_progress
from aacp.user.values import score_text

FINENESS = 1 / 64  # the bisection finds the share to remove up to this


class MaxDropSearch:
    """Bisection for the largest share of one cost that can be removed within the allowed drop of the score.

    Each share is tried by a search of its own, which reuses the evaluations of the searches before it. The bisection
    assumes that removing a larger share never scores better.

    Args:
        search: the search to repeat for each share; its budget holds the limits on other costs.
    """

    def __init__(self, search: Search) -> None:
        self.search = search
        self.plan = search.plan
        self.known = search.known

    def run(self) -> ChosenStructure:
        """The structure of the largest share that stays within the drop."""
        unpruned = self._unpruned_score()
        assert self.plan.max_drop is not None
        allowed = unpruned - self.plan.max_drop
        how = "by the estimate, with its batch norms recalibrated, " if self._trusts_estimates else ""
        report_progress(
            f"the unpruned network has {how}{score_text(unpruned)} on held-out data; {score_text(allowed)} is allowed"
        )
        passed = 0
        failed = self._first_share_out_of_reach()
        if failed <= 1:
            raise InfeasibleBudget(
                f"No structure of this space removes {100 * FINENESS:.1f} % of the {self.plan.shrink}, the smallest "
                "share that is tried. Prune more layers (frozen, scope, parts), use a finer step, or shrink another "
                "cost."
            )
        best = None
        unmet = None  # why the smallest share that failed has no structure, if it has none
        while failed - passed > 1:
            middle = (passed + failed) // 2
            try:
                choice, score = self._probe(middle * FINENESS)
            except InfeasibleBudget as error:  # by measured latencies, or together with a limit on latency
                self._write(middle * FINENESS, f"no structure. {error}")
                failed = middle
                unmet = error
                continue
            is_within = is_within_drop(unpruned, score, self.plan.max_drop)
            verdict = "within" if is_within else "beyond"
            self._write(
                middle * FINENESS, f"{score_text(score)}, {verdict} the drop ({score_text(allowed)} is allowed)"
            )
            if is_within:
                passed = middle
                best = choice
            else:
                failed = middle
                unmet = None
        if best is None:
            raise unmet or InfeasibleBudget(
                f"With {100 * FINENESS:.1f} % of the {self.plan.shrink} removed the score falls below "
                f"{score_text(allowed)}, the lowest that is allowed. Allow a larger drop, score after a short "
                "training (probe_epochs), or hold out data that the network was not trained on."
            )
        return best

    @property
    def _trusts_estimates(self) -> bool:
        """Whether shares are judged by estimates, which are lower than what a training reaches."""
        return self.plan.recipe is not None and not self.plan.probe_epochs

    def _unpruned_score(self) -> float:
        """The score of the unpruned network, obtained in the same way as that of the probes."""
        if self._trusts_estimates:
            return self.search.estimate(self.search.graph.full)
        return self.search.task.unpruned_holdout()

    def _first_share_out_of_reach(self) -> int:
        """The smallest share, in steps of the bisection, that even the cheapest structure does not reach."""
        cost = COSTS[self.plan.shrink].on(self.search.graph, self.search.table)
        space = self.search.whole_space
        is_latency = self.plan.shrink == LATENCY
        cheapest = fastest(space, cost, self.search.bound_budget) if is_latency else space.smallest
        return int((1 - float(cost(np.asarray(cheapest))) / cost.full) / FINENESS) + 1

    def _probe(self, rate: float) -> tuple[ChosenStructure, float]:
        """The best structure found with this share removed, and its score."""
        folder = RunFolder(self.search.folder.path / PROBES / f"{rate:.4f}")
        budget = Budget.of(Budget(*self.search.budget.limits, Limit(self.plan.shrink, pruning_rate=rate)))
        found = replace(self.search, budget=budget, folder=folder, known=self.known).run()
        self.known = History.merged([self.known, found.history])
        return found.choice, self._score(found.choice, folder)

    def _score(self, choice: ChosenStructure, folder: RunFolder) -> float:
        """The score by which a share is judged.

        It is the estimate of the structure, the score of the network that is delivered without training, or that after
        a short fine-tuning with the unpruned network as teacher.
        """
        if self._trusts_estimates:
            return choice.score
        task = self.search.task
        inheritance = self.search.estimate.inheritance
        recipe = self.plan.recipe
        if recipe is None:
            network = Recovering(task, self.plan, inheritance, folder).network(choice.structure)
        else:
            network = inheritance.network(choice.structure)
            finetune(
                network, task.data.train, recipe.scaled(self.plan.probe_epochs, finetuning=True), loss=task.loss,
                teacher=task.model if recipe.distillation else None,
                folder=folder.path / TRAINING, device=task.device,
            )  # fmt: skip
        return task.score_network(network, task.data.holdout)

    def _write(self, rate: float, outcome: str) -> None:
        report_progress(f"{self.plan.shrink} -{100 * rate:.1f} %: {outcome}")
