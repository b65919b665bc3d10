"""TrainingJob: a training run described by names, so that any process can carry it out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from aacp.data.scores import accuracy
from aacp.train.checkpoint import WEIGHTS
from aacp.train.launching import run_in_processes
from aacp.train.loop import fit
from aacp.train.recipe import Recipe
from aacp.train.scoring import scoring_batches
from aacp.train.seeding import global_seed
from aacp.zoo.data import load_data
from aacp.zoo.models import build_model
from aacp.zoo.weights import load_weights


@dataclass(frozen=True)
class TrainingJob:
    """What to train, on what, how and where, in names and numbers."""

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
    verbose: bool = False

    def run(self) -> dict[str, Any]:
        """Train, score on the test set, and say what came out."""
        found: dict[str, Any] = run_in_processes(
            _carry_out,
            self,
            processes=self.processes,
            precision=self.recipe.precision,
            device=self.device,
            folder=self.folder,
        )
        return found


def _carry_out(fabric: Fabric, job: TrainingJob) -> dict[str, Any]:
    """In every process alike."""
    data = load_data(job.data, seed=job.recipe.seed)
    model = _network(job.model, job.weights, job.recipe.seed)
    teacher = None if job.teacher is None else _network(job.teacher, job.teacher_weights, job.recipe.seed)
    trained = fit(
        model,
        data,
        job.recipe,
        teacher=teacher,
        folder=job.folder,
        fabric=fabric,
        verbose=job.verbose,
        tensorboard=job.tensorboard,
    )
    last = trained.last
    found = {"model": job.model, "data": job.data, "epochs": last.epoch, "training accuracy": last.accuracy}
    found |= {"hold-out accuracy": last.holdout, "test accuracy": None, "weights": f"{job.folder}/{WEIGHTS}"}
    if fabric.is_global_zero:
        found["test accuracy"] = _tested(model, data.test, fabric)
    return found


def _network(name: str, weights: str | None, seed: int) -> nn.Module:
    """The network of a name: with weights of a file, or with fresh ones that follow from the seed."""
    with global_seed(torch.device("cpu"), seed):
        model = build_model(name)
    if weights is not None:
        load_weights(model, weights)
    return model


def _tested(model: nn.Module, test: Any, fabric: Fabric) -> float:
    model.to(fabric.device).eval()
    with fabric.autocast():
        return accuracy(model, scoring_batches(test, fabric.device))
