"""SharedEstimate: the inheritance and the estimate of one network, each made once for all stages of a run or sweep."""

from __future__ import annotations

from aacp.channels import ChannelGraph
from aacp.data.scores import NetworkScore
from aacp.estimate.inheritance import Inheritance
from aacp.estimate.psae import PSAE, ExecutionName
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.search.history import History


class SharedEstimate:
    """How structures become networks, and their estimated scores.

    Both are made when they are first needed: a finished run needs no estimate. All runs of a sweep prune the same
    network along the same graph, so that they share one of each.

    Args:
        task: the network and its data.
        plan: its importance, reconstruction, calibration images and seed are used.
    """

    def __init__(self, task: PruningTask, plan: Plan) -> None:
        self.task = task
        self.plan = plan
        self._inheritance: Inheritance | None = None
        self._estimate: PSAE | None = None

    def inheritance(self, graph: ChannelGraph) -> Inheritance:
        """How structures become networks: the same for the estimate, for probes and for the delivered network."""
        if self._inheritance is None:
            self._inheritance = Inheritance(
                self.task.model,
                graph,
                self.task.calibration(self.plan),
                importance=self.plan.importance,
                seed=self.plan.seed,
                reconstruction=self.plan.chosen_reconstruction,
                device=self.task.device,
            )
        return self._inheritance

    def estimate(self, graph: ChannelGraph, known: History) -> PSAE:
        """The estimate, with the scores that are known from earlier runs."""
        if self._estimate is None:
            holdout = self.task.read(self.task.data.holdout)
            # A score that runs code of a trainer needs a network that is really cut.
            execution: ExecutionName = "sliced" if isinstance(self.task.score, NetworkScore) else "auto"
            self._estimate = PSAE(self.inheritance(graph), holdout, score=self.task.score, execution=execution)
        self._estimate.scores.update((candidate.structure.counts, candidate.score) for candidate in known)
        return self._estimate
