"""TrainingJob: a training run described by names, so that any process can run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from aacp.data.batches import Batches
from aacp.data.layouts import ready_to_score
from aacp.data.scores import WatchedBatches, accuracy, scored
from aacp.data.splits import Holdout
from aacp.train.checkpoint import weights_after
from aacp.train.launching import run_in_processes
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.zoo.data import load_data
from aacp.zoo.models import build_model
from aacp.zoo.weights import load_weights

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class TrainingJob:
    """A training run in names and numbers.

    Args:
        model: name of the network, as `build_model` takes it.
        data: name of the data, as `load_data` takes it.
        recipe: the settings.
        folder: the run folder.
        weights: file of weights to start from; None for random weights.
        teacher: name of the network to imitate, if any.
        teacher_weights: file of the teacher's weights.
        device: where to train; None for the GPU if there is one.
        processes: how many processes train together on this machine.
        tensorboard: whether to write TensorBoard files to the folder.
        until: the epoch to stop after, with the learning rates of the whole recipe; None for the last.
        train_on_holdout: whether to train on the hold-out too, as a pruned network may be.
        holdout: the part of the training data that is held out, see `load_data`; 0 trains on all of it.
        cache: the folder of decoded images, see `load_data`.
    """

    model: str
    data: str
    recipe: Recipe
    folder: str
    weights: str | None = None
    teacher: str | None = None
    teacher_weights: str | None = None
    device: str | None = None
    processes: int = 1
    tensorboard: bool = False
    until: int | None = None
    train_on_holdout: bool = False
    holdout: Holdout = None
    cache: str | None = None

    def run(self) -> dict[str, Any]:
        """Train, score on the test set, and return the results by name."""
        results: dict[str, Any] = run_in_processes(
            _run_in_process,
            self,
            processes=self.processes,
            precision=self.recipe.precision,
            device=self.device,
            folder=self.folder,
        )
        return results


def _run_in_process(fabric: Fabric, job: TrainingJob) -> dict[str, Any]:
    """The part of a job that every process runs."""
    data = load_data(job.data, holdout=job.holdout, cache=job.cache)
    model = network_of(job.model, job.weights, job.recipe.seed)
    teacher = None if job.teacher is None else network_of(job.teacher, job.teacher_weights, job.recipe.seed)
    trained = fit(
        model,
        data.all_training() if job.train_on_holdout else data,
        job.recipe,
        teacher=teacher,
        folder=job.folder,
        fabric=fabric,
        tensorboard=job.tensorboard,
        until=job.until,
    )
    return {
        "model": job.model,
        "data": job.data,
        "epochs": trained.last.epoch,
        "training accuracy": trained.last.accuracy,
        "hold-out accuracy": trained.last.holdout,
        "test accuracy": _test_accuracy(model, data.test, fabric) if fabric.is_global_zero else None,
        "weights": f"{job.folder}/{weights_after(trained.last.epoch, job.recipe)}",
    }


def network_of(name: str, weights: str | None, seed: int) -> nn.Module:
    """A network by name, with the weights of a file or drawn with a seed."""
    with global_seed(torch.device("cpu"), seed):
        network = build_model(name)
    if weights is not None:
        load_weights(network, weights)
    return network


def _test_accuracy(model: nn.Module, test: Any, fabric: Fabric) -> float:
    batches = WatchedBatches(Batches.of(test, device=fabric.device, keep=False))  # scored once, so not kept
    with ready_to_score(model.to(fabric.device), batches), fabric.autocast():
        return scored(accuracy, model, batches, "test data")
