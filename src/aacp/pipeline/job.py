"""Jobs: what the commands do, given names of networks, data, files and functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from aacp.cost.budget import Budget
from aacp.data.devices import device_of
from aacp.data.scores import Score, accuracy
from aacp.data.splits import Holdout
from aacp.errors import InvalidOption, UnknownData
from aacp.pipeline.plan import Plan
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.request import plan_of, read_request
from aacp.pipeline.sweep import Sweep, SweepRun, check_sweep
from aacp.pipeline.task import PruningTask
from aacp.runs.files import STRUCTURE, ChosenStructure, Request
from aacp.runs.folder import RunFolder
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.train.teaching import Loss
from aacp.zoo.data import load_data
from aacp.zoo.imports import named_function
from aacp.zoo.models import build_model
from aacp.zoo.weights import load_weights


@dataclass(frozen=True)
class TaskNames:
    """A pruning task by names.

    Args:
        model: the name that `build_model` builds the network by.
        data: the name that `load_data` loads the data by.
        weights: the file of the trained weights.
        metric: package.module:function of the score; None is accuracy.
        device: where to compute; None is the GPU, if there is one.
        loss: package.module:function of the loss; None is cross-entropy.
        holdout: the part of the training data that is held out, see `load_data`.
        cache: the folder of decoded images, see `load_data`.
    """

    model: str
    data: str
    weights: str | None = None
    metric: str | None = None
    device: str | None = None
    loss: str | None = None
    holdout: Holdout = None
    cache: str | None = None

    def load(self, seed: int) -> PruningTask:
        """The task; the seed draws the hold-out, and the weights if there is no file."""
        return PruningTask(
            model=network_of(self.model, self.weights, seed),
            data=load_data(self.data, holdout=self.holdout, seed=seed, cache=self.cache),
            name=self.model,
            device=device_of(self.device),
            score=score_of(self.metric),
            weights_file="" if self.weights is None else str(Path(self.weights).resolve()),
            data_source=self.data,
            loss=loss_of(self.loss),
            holdout=self.holdout,
        )


@dataclass(frozen=True)
class PruningJob:
    """aacp prune and aacp search: the task, its budget, the plan, and the run folder."""

    names: TaskNames
    budget: Budget
    plan: Plan
    folder: str
    known_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.plan.check_budgets([self.budget])

    def prune(self) -> Pruned:
        return self._run().prune()

    def search(self) -> ChosenStructure:
        return self._run().find()[1]

    def _run(self) -> PruningRun:
        task = self.names.load(self.plan.seed)
        folder = RunFolder(self.folder)
        return PruningRun(task, self.budget, self.plan, folder, known_from=self.known_from, verbose=True)


@dataclass(frozen=True)
class SweepJob:
    """aacp sweep: the task, several budgets, the plan, and the folder of all runs."""

    names: TaskNames
    budgets: tuple[Budget, ...]
    plan: Plan
    folder: str
    train: bool
    known_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_sweep(self.plan, self.budgets)

    def sweep(self) -> Sweep:
        task = self.names.load(self.plan.seed)
        run = SweepRun(task, self.budgets, self.plan, self.folder, self.train, self.known_from, verbose=True)
        return run.sweep()


@dataclass(frozen=True)
class FinishingJob:
    """aacp finetune and aacp scratch: the stages of a run after its search.

    Args:
        folder: the run folder.
        model, data, weights, metric, device, loss: as in TaskNames; None is what the folder records.
        cache: the folder of decoded images.
    """

    folder: str
    model: str | None = None
    data: str | None = None
    weights: str | None = None
    metric: str | None = None
    device: str | None = None
    loss: str | None = None
    cache: str | None = None

    @cached_property
    def request(self) -> Request:
        return read_request(RunFolder(self.folder))

    @property
    def names(self) -> TaskNames:
        """The names that the folder records, or those that are given instead."""
        recorded = self.request
        return TaskNames(
            model=self.model or recorded.model,
            data=self.data or recorded.data_source or recorded.data,
            weights=self.weights or recorded.weights_file or None,
            metric=self.metric or recorded.metric_source or None,
            device=self.device,
            loss=self.loss or recorded.loss_source or None,
            holdout=recorded.holdout,
            cache=self.cache,
        )

    @property
    def recipe(self) -> Recipe | None:
        """The recipe that the request fine-tunes with, if it has one."""
        written = self.request.recipe
        return None if written is None or self.request.from_scratch else Recipe(**Recipe.completed(written))

    def finish(self, recipe: Recipe, from_scratch: bool, train_on_holdout: bool, export: bool) -> Pruned:
        """Train the structure that was found, evaluate, save, export and report."""
        folder = RunFolder(self.folder)
        if folder.read_json(STRUCTURE) is None:
            raise InvalidOption(f"The search in {self.folder} is not finished. Repeat its command first.")
        plan = plan_of(
            self.request,
            recipe=recipe,
            from_scratch=from_scratch,
            train_on_holdout=train_on_holdout,
            export=export,
        )
        budget = Budget(*self.request.limits)
        run = PruningRun(
            self.names.load(plan.seed), budget, plan, folder, known_from=self.request.known_from, verbose=True
        )
        return run.prune()


def network_of(name: str, weights: str | None, seed: int) -> nn.Module:
    """A network by name, with the weights of a file or drawn with a seed."""
    with global_seed(torch.device("cpu"), seed):
        network = build_model(name)
    if weights is not None:
        load_weights(network, weights)
    return network


def score_of(name: str | None) -> Score:
    """A score function by name, or accuracy."""
    return accuracy if name is None else named_function(name, "(network, batches)", UnknownData)


def loss_of(name: str | None) -> Loss | None:
    """A loss function by name, or None for cross-entropy."""
    return None if name is None else named_function(name, "(outputs, targets)", UnknownData)
