"""Probing: the smallest network whose score stays within a drop."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from aacp.errors import InfeasibleBudget
from aacp.estimate.psae import PSAE
from aacp.pipeline.searching import Search
from aacp.pipeline.targets import cost_of_name
from aacp.runs.files import TRAINING, ChosenStructure, Target
from aacp.runs.folder import RunFolder
from aacp.search.history import History
from aacp.train.loop import finetune

PROBES = "probes"
FINENESS = 1 / 64  # of the share to remove


class MaxDropSearch:
    """Shares of one cost are removed, each by a search of its own, until bisection has found the largest that passes.

    That takes for granted that a larger share never scores better. Each search knows what those before it have found.
    """

    def __init__(self, search: Search, estimate: PSAE) -> None:
        self.search, self.estimate, self.plan, self.known = search, estimate, search.plan, search.known

    def smallest(self) -> ChosenStructure:
        """The structure of the largest share that passes."""
        allowed = self._unpruned() - (self.plan.max_drop or 0.0)
        low, high, best = 0, self._first_out_of_reach(), None
        while high - low > 1:
            middle = (low + high) // 2
            choice, score = self._probed(middle * FINENESS)
            self._say(middle * FINENESS, score, allowed)
            if score >= allowed:
                low, best = middle, choice
            else:
                high = middle
        if best is None:
            raise InfeasibleBudget(
                f"With {100 * FINENESS:.1f} % of the {self.plan.shrink} removed the score falls below {allowed:.4f}, "
                "which is all that was allowed. Allow a larger drop, or judge by a short training (probe_epochs)."
            )
        return best

    def _unpruned(self) -> float:
        """What the score may drop from: the unpruned network judged as its rivals are."""
        subject = self.search.subject
        if self.plan.probe_epochs:
            return subject.scored(subject.model, subject.data.holdout)
        return self.estimate(self.search.graph.full)

    def _first_out_of_reach(self) -> int:
        """The smallest share, counted in steps of the bisection, that not even the smallest structure reaches."""
        cost = cost_of_name(self.plan.shrink, self.search.graph, self.search.table)
        smallest = self.search.space.smallest
        return int((1 - float(cost(np.asarray(smallest))) / cost.full) / FINENESS) + 1

    def _probed(self, rate: float) -> tuple[ChosenStructure, float]:
        """The best structure found with this share removed, and its score."""
        place = RunFolder(self.search.folder.path / PROBES / f"{rate:.4f}")
        others = tuple(limit for limit in self.search.limits if limit.cost != self.plan.shrink)
        limits = (*others, Target(self.plan.shrink, pruning_rate=rate))
        choice, history = replace(self.search, limits=limits, folder=place, known=self.known).run(self.estimate)
        self.known = History.merged([self.known, history])
        return choice, self._trained(choice, place) if self.plan.probe_epochs else choice.score

    def _trained(self, choice: ChosenStructure, place: RunFolder) -> float:
        """The score of a structure on the hold-out after a short fine-tuning."""
        subject, recipe = self.search.subject, self.plan.recipe
        assert recipe is not None
        network = self.estimate.inheritance.network(choice.counts)
        finetune(
            network, subject.data.train, recipe.scaled(self.plan.probe_epochs), teacher=subject.teacher(recipe),
            loss=subject.loss, folder=place.path / TRAINING, device=subject.device, verbose=self.search.verbose,
        )  # fmt: skip
        return subject.scored(network, subject.data.holdout)

    def _say(self, rate: float, score: float, allowed: float) -> None:
        if self.search.verbose:
            verdict = "within" if score >= allowed else "beyond"
            sys.stderr.write(
                f"{self.plan.shrink} -{100 * rate:.1f} %: {score:.4f}, {verdict} the drop ({allowed:.4f} is allowed)\n"
            )
