"""Subject: the network that is pruned, with its data and its score, on a device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from aacp.channels import ChannelGraph
from aacp.data.batches import Batches
from aacp.data.scores import Score, accuracy
from aacp.data.splits import Data, Source
from aacp.errors import InvalidData, UntraceableModel
from aacp.estimate.inheritance import Inheritance
from aacp.estimate.psae import PSAE
from aacp.graph.tracing import prepare
from aacp.modules import evaluating
from aacp.pipeline.plan import Plan
from aacp.pipeline.targets import ANALYTIC
from aacp.runs.files import NetworkMetrics
from aacp.structure import Structure
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed, seed_loader
from aacp.train.teaching import Loss


@dataclass(frozen=True, eq=False)
class PruningTask:
    """What is pruned and what it is judged by; the model is never changed."""

    model: nn.Module
    data: Data
    name: str
    device: torch.device
    score: Score = accuracy
    weights_file: str = ""  # where the weights came from, if from a file
    data_source: str = ""  # what the data were asked for as, if by a name
    metric_source: str = ""  # where the score function came from, if by a name
    loss: Loss | None = None  # None: cross-entropy
    loss_source: str = ""
    _unpruned: list[tuple[Source, float]] = field(default_factory=list, init=False, repr=False)  # parts, their scores

    def __post_init__(self) -> None:
        if not isinstance(self.data, Data):
            raise InvalidData(
                f"data is a {type(self.data).__name__}, which does not say what to train, search and test on. "
                "Give aacp.Data.of(train, test), or aacp.Data(train, holdout, test)."
            )

    def example(self) -> Any:
        """One held-out input, as the network takes it: costs are those of one."""
        return next(self.read(self.data.holdout, 1, torch.device("cpu")).inputs())

    def calibration(self, plan: Plan) -> Batches:
        return self.read(self.data.train, plan.calibration_images)

    def trained_on(self, plan: Plan) -> tuple[Source, Source | None]:
        """What the structure that was found is trained on, and what it is scored on meanwhile."""
        data = self.data
        return (data.all_training(), None) if plan.train_on_holdout else (data.train, data.holdout)

    def read(self, part: Source, images: int | None = None, device: torch.device | None = None) -> Batches:
        """A part of the data, or so many of it; what a loader shuffles or augments is the same in every call."""
        with global_seed(self.device, 0):
            seed_loader(part, 0)
            return Batches.of(part, images=images, device=device or self.device)

    def inheritance(self, graph: ChannelGraph, plan: Plan) -> Inheritance:
        """How a structure becomes a network: one value for the estimate, for probing and for delivery."""
        return Inheritance(
            self.model, graph, self.calibration(plan), importance=plan.importance, seed=plan.seed, device=self.device
        )

    def estimate(self, inheritance: Inheritance) -> PSAE:
        return PSAE(inheritance, self.read(self.data.holdout), score=self.score)

    def teacher(self, recipe: Recipe) -> nn.Module | None:
        """The unpruned network, if the recipe has a use for a teacher."""
        return self.model if recipe.distillation else None

    def name_of(self, part: Source) -> str:
        """What a part of the data is called in messages."""
        names = (
            (self.data.test, "test data"),
            (self.data.holdout, "held-out data"),
            (self.data.train, "training data"),
        )
        return next((name for known, name in names if known is part), "data")

    def scored(self, network: nn.Module, part: Source) -> float:
        """The score of a network on a part of the data; that of the unpruned one is computed once."""
        if network is not self.model:
            return self._judged(network, part)
        known = [score for judged, score in self._unpruned if judged is part]
        if not known:
            known.append(self._judged(network, part))
            self._unpruned.append((part, known[0]))
        return known[0]

    def _judged(self, network: nn.Module, part: Source) -> float:
        """The network goes back to where it was."""
        home = next((parameter.device for parameter in network.parameters()), self.device)
        try:
            with evaluating(network.to(self.device)):
                return float(self.score(network, self.read(part)))
        except InvalidData as error:
            raise type(error)(f"{self.name_of(part).capitalize()}: {error}") from error
        finally:
            network.to(home)

    def measured(
        self, network: nn.Module, graph: ChannelGraph, structure: Structure, *, knows_holdout: bool = False
    ) -> NetworkMetrics:
        """What a network scores, and what a structure of the graph costs; a hold-out it was trained on says nothing."""
        test = self.scored(network, self.data.test)
        holdout = None if knows_holdout else self.scored(network, self.data.holdout)
        costs = {
            name: int(ANALYTIC[name](graph)(np.asarray(structure))) for name in ("macs", "params", "activation_bytes")
        }
        return NetworkMetrics(test, holdout, **costs)

    def require_equal(self, graph: ChannelGraph, structure: Structure) -> None:
        """Cut to the very structure that is delivered, the network must compute what the masked original does."""
        checked = prepare(self.model, self.example(), graph.form)
        difference = checked.difference_when(graph, graph.kept_units(structure))
        if difference is not None:
            raise UntraceableModel(
                f"The network cut to {list(structure)} does not compute what the masked one does: {difference}. "
                "Freeze the parts that changed last, and report this network to us."
            )
