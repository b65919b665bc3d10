"""SharedEstimate: the inheritance and the estimate of one network, each made once for all stages of a run or sweep."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from aacp.channels import ChannelGraph
from aacp.data.scores import NetworkScore
from aacp.estimate.inheritance import Inheritance
from aacp.estimate.psae import PSAE, ExecutionName
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.search.history import History
from aacp.search.loop import Map
from aacp.structure import Structure
from aacp.workers.pool import WorkerPool
from aacp.workers.ray import RayEngine, WorkerRequest


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
        self._pool: WorkerPool | None = None

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

    def map_for(self, graph: ChannelGraph) -> Map:
        """The function that evaluates a batch of structures: in this process, or on the workers of the plan."""
        if self.plan.workers is None:
            return builtins.map
        if self._pool is None:
            work = RemoteWork(self.task, self.plan, graph)
            uses_gpu = self.task.device.type == "cuda"
            self._pool = WorkerPool(RayEngine(WorkerRequest.of(self.plan.workers), work, uses_gpu=uses_gpu))
        return self._map_on_workers

    def _map_on_workers(self, estimate: Any, batch: list[Structure]) -> Iterator[float]:
        """The scores of a batch: those that are known, and those that workers estimate."""
        assert self._pool is not None
        known: dict[tuple[int, ...], float] = estimate.scores
        new = self._pool.map([structure for structure in batch if structure.counts not in known])
        for structure in batch:
            if structure.counts not in known:
                known[structure.counts] = next(new)
            yield known[structure.counts]

    def release_workers(self) -> None:
        """End the workers, if there are any."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


@dataclass(frozen=True, eq=False)
class RemoteWork:
    """What a worker needs to estimate structures; a call makes the estimate, in the process of the worker.

    Args:
        task: the network and its data.
        plan: how structures become networks.
        graph: the channel graph of the network.
    """

    task: PruningTask
    plan: Plan
    graph: ChannelGraph

    def __call__(self) -> Callable[[Structure], float]:
        if self.task.device.type == "cpu":
            torch.set_num_threads(1)  # so that scores do not depend on the number of cores of a machine
        device = torch.device(self.task.device.type)  # Ray shows a worker only the GPU that it may use
        return SharedEstimate(replace(self.task, device=device), self.plan).estimate(self.graph, History())
