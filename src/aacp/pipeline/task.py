"""PruningTask: the network that is pruned, with its data and its score, on a device."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.structure import Structure
from aacp.cost.kinds import computed_costs
from aacp.data.batches import Batches
from aacp.data.examples import has_targets
from aacp.data.layouts import ready_to_score
from aacp.data.likeness import Likeness
from aacp.data.scores import Score, WatchedBatches, accuracy, scored
from aacp.data.splits import Data, Holdout, Source, require_examples, sampled
from aacp.errors import InvalidData, UntraceableModel
from aacp.estimate.inheritance import Inheritance
from aacp.graph.tracing import difference_when_cut
from aacp.pipeline.plan import Plan
from aacp.pytorch.modules import copy_module, in_order, require_network, unwrapped
from aacp.runs.scores import NetworkMetrics
from aacp.train.seeding import global_seed
from aacp.train.teaching import Loss
from aacp.user.values import function, instance


def chosen_score(score: Score | None, model: nn.Module, data: Data) -> Score:
    """The given score; without one accuracy or, if the held-out data have no labels, the likeness to the model."""
    if score is not None:
        return score
    require_examples(data.train, "training data")  # a hold-out that was split off them is empty too
    require_examples(data.holdout, "held-out data")
    first = next(iter(Batches.of(data.holdout, images=1, keep=False)))
    # A dictionary that the network does not take may hold labels: the preflight rejects it.
    return Likeness(model) if not has_targets(first) and can_be_given(model, first) else accuracy


def can_be_given(model: nn.Module, batch: Any) -> bool:
    """True if a batch may be inputs alone: several may if the network has as many arguments, or of these names."""
    if not isinstance(batch, (dict, tuple, list)):
        return True
    arguments = () if isinstance(batch, dict) else batch
    named = batch if isinstance(batch, dict) else {}
    try:
        inspect.signature(model.forward).bind(*arguments, **named)
    except TypeError:
        return False
    return True


@dataclass(eq=False)
class PruningTask:
    """The network that is pruned and what it is judged by; the model is never changed.

    Args:
        model: the trained network; if DataParallel, torch.compile or the like wraps it, the network inside.
        data: what to train, search and test on.
        name: the name that `build_model` builds the network by, or None: files then hold the name of its class.
        device: where to compute.
        score: judges a network; a higher score is better.
        weights_file: the file that the weights were loaded from, if any.
        data_source: the data as named on the command line, if they were named.
        loss: what training minimises; None is cross-entropy.
        holdout: the size of the hold-out as requested from `load_data`, if the data were named.
        holdout_seed: chose the examples that are held out, if the data were named.
        teacher: the network that a recipe with distillation learns from; None is the unpruned network.
    """

    model: nn.Module
    data: Data
    name: str | None
    device: torch.device
    score: Score = accuracy
    weights_file: str = ""
    data_source: str = ""
    loss: Loss | None = None
    holdout: Holdout = None
    holdout_seed: int | None = None
    teacher: nn.Module | None = None
    warnings: set[str] = field(default_factory=set, init=False, repr=False)  # those that a run of this task has given
    # Scores of the unpruned network, by the identity of the part of the data: it is scored several times in a run.
    _unpruned_scores: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        require_network(self.model)
        self.model = unwrapped(self.model)
        if not isinstance(self.data, Data):
            raise InvalidData(
                f"data is a {type(self.data).__name__}, which does not say what to train, search and test on. "
                "Give aacp.Data.of(train, test), or aacp.Data(train, holdout, test)."
            )
        function("score", self.score, "(network, batches)")
        if self.loss is not None:
            function("loss", self.loss, "(outputs, targets)")
        if self.teacher is not None:
            instance("teacher", self.teacher, nn.Module, "Give the network itself, an object of its class.")
        if self.name is not None:
            instance("name", self.name, str, "Give the name that aacp.build_model builds the network by.")

    @classmethod
    def of(
        cls,
        model: nn.Module,
        data: Data,
        name: str | None,
        device: torch.device,
        score: Score | None = None,
        loss: Loss | None = None,
        teacher: nn.Module | None = None,
    ) -> PruningTask:
        """A task whose score follows from the data if none is given; the arguments are those of the class."""
        task = cls(model, data, name, device, score or accuracy, loss=loss, teacher=teacher)  # checks the types
        task.score = chosen_score(score, task.model, data)
        return task

    @property
    def label(self) -> str:
        """The name of the network, for people."""
        return self.name or type(self.model).__name__

    def example(self) -> Any:
        """One held-out input, as the network and its exported files take it: costs are those of one input."""
        return in_order(self.model, next(self.read(self.data.holdout, 1, torch.device("cpu")).inputs()))

    def calibration(self, plan: Plan) -> Batches:
        """The training images that batch norms are recalibrated on: a sample with the same share of every label."""
        return self.read(sampled(self.data.train, plan.calibration_images, plan.seed), plan.calibration_images)

    def training_parts(self, plan: Plan) -> tuple[Source, Source | None]:
        """The data that the final network is trained on, and the data that it is scored on after each epoch."""
        data = self.data
        return (data.all_training(), None) if plan.train_on_holdout else (data.train, data.holdout)

    def read(
        self, part: Source, images: int | None = None, device: torch.device | None = None, keep: bool = True
    ) -> Batches:
        """A part of the data, or its first `images`; a loader shuffles and augments alike in every call.

        Args:
            part: the part of the data.
            images: the number of examples to read; None reads all.
            device: where to compute; None is the task's device.
            keep: False reads them in every pass, for data that is read once.
        """
        return Batches.of(part, images=images, device=device or self.device, keep=keep)

    def teacher_for(self, plan: Plan) -> nn.Module | None:
        """The network that a training of the plan learns from: the given one or, if the recipe distils, the unpruned.

        From scratch there is none.
        """
        if plan.from_scratch or plan.recipe is None:
            return None
        return self.teacher or (self.model if plan.recipe.distillation else None)

    def name_of(self, part: Source) -> str:
        """The name of a part of the data in messages."""
        if self.data.train is self.data.test:  # inputs to calibrate on, which are used for everything
            return "data"
        names = (
            (self.data.test, "test data"),
            (self.data.holdout, "held-out data"),
            (self.data.train, "training data"),
        )
        return next((name for known, name in names if known is part), "data")

    def score_network(self, network: nn.Module, part: Source) -> float:
        """The score of a network on a part of the data; the unpruned network is scored once on each."""
        if network is not self.model:
            return self._score(network, part)
        if id(part) not in self._unpruned_scores:
            self._unpruned_scores[id(part)] = self._score(copy_module(network), part)
        return self._unpruned_scores[id(part)]

    def unpruned_holdout(self) -> float:
        """The score of the unpruned network on the hold-out, with which estimates are compared."""
        with global_seed(self.device, 0):  # random numbers drawn later are the same as without this
            return self.score_network(self.model, self.data.holdout)

    def unpruned_training(self, images: int) -> float:
        """The score of the unpruned network on a sample of the training data, without augmentation."""
        with global_seed(self.device, 0):
            return self._score(copy_module(self.model), sampled(self.data.train, images), images)

    def _score(self, network: nn.Module, part: Source, images: int | None = None) -> float:
        """Score a network on the task's device, on all examples or the first `images`, and move it back to its own.

        It is scored in the layout in which it computes fastest, as an estimate is, and gives its outputs in the plain.
        """
        home = next((parameter.device for parameter in network.parameters()), self.device)
        batches = WatchedBatches(self.read(part, images, keep=False), self.name_of(part))
        try:
            with ready_to_score(network.to(self.device), self.read(self.data.holdout, images=1, keep=False)):
                return scored(self.score, network, batches, self.name_of(part))
        finally:
            network.to(home)

    def measure(
        self, network: nn.Module, graph: ChannelGraph, structure: Structure, *, trained_on_holdout: bool = False
    ) -> NetworkMetrics:
        """The scores of a network and the costs of its structure.

        Args:
            network: the network to score.
            graph: the channel graph that the structure belongs to.
            structure: the structure of the network.
            trained_on_holdout: True if the network was trained on the hold-out, whose score then means nothing.
        """
        test = self.score_network(network, self.data.test)
        holdout = None if trained_on_holdout else self.score_network(network, self.data.holdout)
        return NetworkMetrics(test, holdout, {cost.name: int(cost(structure)) for cost in computed_costs(graph)})

    def require_equal(self, inheritance: Inheritance, structure: Structure) -> None:
        """Reject a structure for which the cut network does not compute the same as the masked original.

        The cut removes the units that the delivered network loses: those that the inheritance ranks lowest.
        """
        graph = inheritance.graph
        with global_seed(self.device, 0):  # networks may draw random numbers
            difference = difference_when_cut(self.model, graph, self.example(), inheritance.units(structure))
        if difference is not None:
            raise UntraceableModel(
                f"The network cut to {list(structure)} does not compute the same as the masked one: {difference}. "
                "Freeze the parts that changed last, and report this network to us."
            )
