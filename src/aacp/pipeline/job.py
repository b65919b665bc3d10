"""Jobs: what the command line asks for, in names: of networks, data, files and functions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from aacp.data.devices import device_of
from aacp.data.scores import Score, accuracy
from aacp.errors import InvalidOption, UnknownData
from aacp.pipeline.plan import Plan
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.request import plan_of, read_request
from aacp.pipeline.sweep import Sweep, Sweeping
from aacp.pipeline.task import PruningTask
from aacp.runs.files import STRUCTURE, ChosenStructure, Request, Target
from aacp.runs.folder import RunFolder
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.train.teaching import Loss
from aacp.zoo.data import load_data
from aacp.zoo.imports import named_function
from aacp.zoo.models import build_model
from aacp.zoo.weights import load_weights


@dataclass(frozen=True)
class Names:
    """A network with its data and its score, in names."""

    model: str
    data: str
    weights: str | None = None
    metric: str | None = None
    device: str | None = None
    loss: str | None = None

    def subject(self, seed: int) -> PruningTask:
        """What is named; the seed is for weights that are drawn and for the hold-out."""
        file = "" if self.weights is None else str(Path(self.weights).resolve())
        data, device = load_data(self.data, seed=seed), device_of(self.device)
        model = network_of(self.model, self.weights, seed)
        return PruningTask(
            model, data, self.model, device, score_of(self.metric), file, self.data, self.metric or "",
            loss_of(self.loss), self.loss or "",
        )  # fmt: skip


@dataclass(frozen=True)
class PruningJob:
    """A run: what to prune, to what, how and where."""

    names: Names
    limits: tuple[Target, ...]
    plan: Plan
    folder: str
    known_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.plan.check_budgets([self.limits])

    def run(self) -> Pruned:
        return self._run().pruned()

    def search(self) -> ChosenStructure:
        return self._run().found()[1]

    def _run(self) -> PruningRun:
        subject = self.names.subject(self.plan.seed)
        return PruningRun(
            subject, self.limits, self.plan, RunFolder(self.folder), known_from=self.known_from, verbose=True
        )


@dataclass(frozen=True)
class SweepJob:
    """Runs under several budgets, side by side."""

    names: Names
    budgets: tuple[tuple[Target, ...], ...]
    plan: Plan
    folder: str
    train: bool
    known_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.plan.check_budgets(self.budgets)

    def run(self) -> Sweep:
        subject = self.names.subject(self.plan.seed)
        return Sweeping(
            subject, self.budgets, self.plan, self.folder, self.train, self.known_from, verbose=True
        ).sweep()


@dataclass(frozen=True)
class FinishingJob:
    """The rest of a run that was searched; names are for what its folder does not tell, or not any more."""

    folder: str
    model: str | None = None
    data: str | None = None
    weights: str | None = None
    metric: str | None = None
    device: str | None = None
    loss: str | None = None

    @cached_property
    def asked(self) -> Request:
        return read_request(RunFolder(self.folder))

    @property
    def names(self) -> Names:
        weights, metric = self.weights or self.asked.weights_file, self.metric or self.asked.metric_source
        model, data = self.model or self.asked.model, self.data or self.asked.data_source or self.asked.data
        loss = self.loss or self.asked.loss_source
        return Names(model, data, weights or None, metric or None, self.device, loss or None)

    @property
    def recipe(self) -> Recipe | None:
        """What the run was asked to fine-tune by, if it was."""
        written = self.asked.recipe
        return None if written is None or self.asked.from_scratch else Recipe(**Recipe.completed(written))

    def run(self, recipe: Recipe, from_scratch: bool, train_on_holdout: bool, export: bool) -> Pruned:
        """Train what was found, and all that follows."""
        place = RunFolder(self.folder)
        if place.read_json(STRUCTURE) is None:
            raise InvalidOption(f"The search in {self.folder} has not come to its end. Give its command again first.")
        otherwise = {"from_scratch": from_scratch, "train_on_holdout": train_on_holdout, "export": export}
        plan = plan_of(self.asked, recipe=recipe, **otherwise)
        subject, known = self.names.subject(plan.seed), self.asked.known_from
        return PruningRun(subject, self.asked.limits, plan, place, known_from=known, verbose=True).pruned()


def network_of(name: str, weights: str | None, seed: int) -> nn.Module:
    """A network by its name, with the weights of a file or drawn anew."""
    with global_seed(torch.device("cpu"), seed):
        network = build_model(name)
    if weights is not None:
        load_weights(network, weights)
    return network


def score_of(name: str | None) -> Score:
    """A score function of the user's, or accuracy."""
    return accuracy if name is None else named_function(name, "(network, batches)", UnknownData)


def loss_of(name: str | None) -> Loss | None:
    """A loss function of the user's, or none: cross-entropy."""
    return None if name is None else named_function(name, "(outputs, targets)", UnknownData)
