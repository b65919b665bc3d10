"""SharedEstimate: the inheritance and the estimate of one network, each made once for all stages of a run or sweep."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.data.batches import Batches
from aacp.data.scores import NetworkScore
from aacp.data.splits import Source, sampled
from aacp.errors import InvalidOption
from aacp.estimate.inheritance import Inheritance
from aacp.estimate.psae import PSAE, ExecutionName
from aacp.estimate.screened import ScreenedEstimate
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.search.history import History
from aacp.search.queue import Estimate, FewImagesQueue, ScoreQueue
from aacp.workers.pool import WorkerPool
from aacp.workers.ray import RayEngine, WorkerRequest


class SharedEstimate:
    """How structures become networks, and their estimated scores.

    Both are made when they are first needed: a finished run needs no estimate. All runs of a sweep prune the same
    network along the same graph, so that they share one of each.
    """

    def __init__(self, task: PruningTask, plan: Plan) -> None:
        self.task = task
        self.plan = plan
        self._inheritance: Inheritance | None = None
        self._estimate: PSAE | None = None
        self._few: PSAE | None = None  # the estimate on few images
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

    def estimate(self, graph: ChannelGraph) -> PSAE:
        """The estimate on all images."""
        if self._estimate is None:
            holdout = self.task.read(self.task.data.holdout)
            # A score that runs code of a trainer needs a network that is really cut.
            execution: ExecutionName = "sliced" if isinstance(self.task.score, NetworkScore) else "auto"
            self._estimate = PSAE(self.inheritance(graph), holdout, score=self.task.score, execution=execution)
        return self._estimate

    def add_known(self, graph: ChannelGraph, known: History) -> None:
        """Add the scores of earlier runs to the estimate, which does not compute them again."""
        scores = self.estimate(graph).scores
        scores.update((candidate.structure.counts, candidate.score) for candidate in known)

    def prepare_workers(self, graph: ChannelGraph) -> None:
        """Make the pool of workers that the plan requests, if it requests any."""
        if self._pool is None and self.plan.workers is not None:
            work = RemoteWork(replace(self.task, teacher=None), self.plan, graph)  # nothing is trained there
            self._pool = worker_pool(self.task, self.plan, work)

    def queue(self, estimate: PSAE) -> ScoreQueue | None:
        """The queue of structures for the workers, by one of the estimates here; None if there are no workers."""
        if self._pool is None:
            return None
        return KnownFirst(estimate.scores, FewImagesQueue(self._pool) if estimate is self._few else self._pool)

    def few(self, estimate: PSAE) -> PSAE | None:
        """The estimate on few images, if the plan searches on few; `estimate` is that on all."""
        share = self.plan.screening
        if share is None:
            return None
        if self._few is None:
            calibration = self._part_of(self.task.data.train, share, estimate.inheritance.calibration.images)
            holdout = self._part_of(self.task.data.holdout, share, estimate.holdout.images)
            inheritance = estimate.inheritance.recalibrating_on(calibration)
            # The same execution: scores on few and on all images must differ by the images alone.
            self._few = PSAE(inheritance, holdout, score=self.task.score, execution=estimate.execution)
        return self._few

    def _part_of(self, source: Source, share: float, images: int) -> Batches:
        """A share of some images as a sample of the data that they come from: at least one image, and not all."""
        if images < 2:
            raise InvalidOption(
                f"A search on a share of {images} image is not possible. Give more calibration and held-out images, or "
                "leave screening out."
            )
        few = max(1, min(images - 1, round(share * images)))
        return self.task.read(sampled(source, few, self.plan.seed), few)

    def release(self) -> None:
        """End the workers, and free the memory of the estimates for a training; both are made again if needed."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._estimate = self._few = None
        if self.task.device.type == "cuda":
            gc.collect()
            torch.cuda.empty_cache()


class KnownFirst:
    """A queue that sends only structures without a known score to another one, and adds their scores to those known."""

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
    """What a worker needs to estimate structures; a call makes the estimate, in the process of the worker."""

    task: PruningTask
    plan: Plan
    graph: ChannelGraph

    def __call__(self) -> Estimate:
        shared = shared_on_worker(self.task, self.plan)
        estimate = shared.estimate(self.graph)
        few = shared.few(estimate)
        return estimate if few is None else ScreenedEstimate(few, estimate)


def worker_pool(task: PruningTask, plan: Plan, work: Callable[[], Estimate]) -> WorkerPool:
    """The workers that a plan requests; each calls `work` once, and then what it returns for every structure."""
    assert plan.workers is not None
    return WorkerPool(RayEngine(WorkerRequest.of(plan.workers), work, uses_gpu=task.device.type == "cuda"))


def shared_on_worker(task: PruningTask, plan: Plan) -> SharedEstimate:
    """The inheritance and the estimate in the process of a worker."""
    if task.device.type == "cpu":
        torch.set_num_threads(1)  # so that scores do not depend on the number of cores of a machine
    device = torch.device(task.device.type)  # Ray shows a worker only the GPU that it may use
    return SharedEstimate(replace(task, device=device), plan)
