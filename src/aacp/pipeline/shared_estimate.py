"""SharedEstimate: the inheritance and the estimate of one network, each made once for all stages of a run or sweep."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.data.scores import NetworkScore
from aacp.estimate.inheritance import Inheritance
from aacp.estimate.psae import PSAE, ExecutionName
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.search.history import History
from aacp.search.queue import MapQueue, ScoreQueue
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

    def queue_for(self, graph: ChannelGraph) -> Callable[[PSAE], ScoreQueue]:
        """What makes the queue that evaluates structures: in this process, or on the workers of the plan."""
        if self.plan.workers is None:
            return MapQueue
        if self._pool is None:
            work = RemoteWork(self.task, self.plan, graph)
            uses_gpu = self.task.device.type == "cuda"
            self._pool = WorkerPool(RayEngine(WorkerRequest.of(self.plan.workers), work, uses_gpu=uses_gpu))
        pool = self._pool
        return lambda estimate: KnownFirst(estimate.scores, pool)

    def release_workers(self) -> None:
        """End the workers, if there are any."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


class KnownFirst:
    """A queue that sends only structures without a known score to another one, and remembers their scores.

    Args:
        known: scores by the counts of structures; new ones are added.
        queue: where the other structures are evaluated.
    """

    def __init__(self, known: dict[tuple[int, ...], float], queue: ScoreQueue) -> None:
        self._known = known
        self._queue = queue
        self._submitted: deque[tuple[tuple[int, ...], bool]] = deque()  # counts, and whether the score was known

    def submit(self, structure: Structure) -> None:
        is_known = structure.counts in self._known
        self._submitted.append((structure.counts, is_known))
        if not is_known:
            self._queue.submit(structure)

    def next_score(self) -> float:
        counts, is_known = self._submitted[0]
        if not is_known:
            self._known[counts] = self._queue.next_score()
        self._submitted.popleft()
        return self._known[counts]

    def clear(self) -> None:
        self._submitted.clear()
        self._queue.clear()


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
