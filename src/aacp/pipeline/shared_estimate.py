"""SharedEstimate: the estimate of one network, made once and used by all searches of a run or sweep."""

from __future__ import annotations

from torch import nn

from aacp.channels import ChannelGraph
from aacp.estimate.importance import unit_importance
from aacp.estimate.inheritance import Order, inherit
from aacp.estimate.psae import PSAE
from aacp.estimate.recalibration import recalibrate
from aacp.pipeline.delivery import KeptChannels
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.search.history import History
from aacp.structure import Structure


class SharedEstimate:
    """What the runs of a sweep share: how structures become networks, and their estimated scores.

    Both are made when they are first needed. Every run of a sweep prunes the same network along the same graph, so
    that one of each is enough.

    Args:
        task: the network and its data.
        plan: its importance, reconstruction, calibration images and seed are used.
    """

    def __init__(self, task: PruningTask, plan: Plan) -> None:
        self.task = task
        self.plan = plan
        self._estimate: PSAE | None = None

    def kept(self, graph: ChannelGraph, structure: Structure) -> KeptChannels:
        """The channels that a structure keeps."""
        scores = unit_importance(self.task.model, graph, self.plan.importance, self.plan.seed)
        return Order.of(graph, scores).kept(structure)

    def network(self, graph: ChannelGraph, structure: Structure) -> nn.Module:
        """The network with a structure, with inherited weights, recalibrated."""
        plan = self.plan
        network = inherit(self.task.model, graph, structure, importance=plan.importance, seed=plan.seed)
        recalibrate(network.to(self.task.device), self.task.calibration(plan))
        return network

    def estimate(self, graph: ChannelGraph, known: History) -> PSAE:
        """The estimate, with the scores that are known from earlier runs."""
        if self._estimate is None:
            task, plan = self.task, self.plan
            self._estimate = PSAE(
                task.model, graph, calibration=task.calibration(plan), holdout=task.read(task.data.holdout),
                score=task.score, importance=plan.importance, seed=plan.seed, device=task.device,
            )  # fmt: skip
        self._estimate.scores.update({candidate.structure.counts: candidate.score for candidate in known})
        return self._estimate
