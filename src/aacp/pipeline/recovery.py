"""Recovery: what a network that is not trained gets back after the cut, step by step, and what each step gave."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.lanes import stays
from aacp.channels.structure import Structure
from aacp.estimate.inheritance import REPAIR, Inheritance
from aacp.estimate.recalibration import recalibrate, running_norms
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.pytorch.modules import copy_module
from aacp.runs.files import RECOVERY, TRAINING
from aacp.runs.folder import RunFolder
from aacp.runs.scores import NetworkMetrics, Recovery, RecoveryStep
from aacp.train.mimic import Features, mimic

INHERITED = "inherited"
RECALIBRATED = "recalibrated"
REPAIRED = "repaired"
RECONSTRUCTED = "reconstructed"
MIMICKED = "mimicked"
PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
NO_FEATURES = "Mimicry compares outputs only: the graph names no last layer that both networks have."


@dataclass(frozen=True, eq=False)
class Recovering:
    """Makes the network of a structure that is delivered without training, and scores what each step gave."""

    task: PruningTask
    plan: Plan
    inheritance: Inheritance
    place: RunFolder

    def network(self, structure: Structure) -> nn.Module:
        """The network to deliver, in evaluation mode; an interrupted mimicry is resumed."""
        network = self.inheritance.network(structure).eval()
        notes = list(dict.fromkeys(self.inheritance.notes))
        if self.plan.mimic:
            features = features_of(self.inheritance.graph, network, self.inheritance.units(structure))
            notes += [] if features else [NO_FEATURES]
            mimic(
                network, self.task.model, self.inheritance.calibration, self.plan.mimic, features=features,
                seed=self.plan.seed, folder=self.place.path / TRAINING, device=self.task.device,
            )  # fmt: skip
        if self.known() is None:
            self.place.write_json(RECOVERY, Recovery(notes=tuple(notes)).to_json())
        return network

    def record(self, structure: Structure, delivered: NetworkMetrics) -> None:
        """Score the network after every step but the last, whose scores are those of the delivered network."""
        known = self.known() or Recovery()
        if known.steps:
            return
        steps = [self._scored(name, network) for name, network in self._earlier_networks(structure)]
        steps.append(RecoveryStep(self._last, delivered.holdout, delivered.test))
        self.place.write_json(RECOVERY, Recovery(tuple(steps), known.notes).to_json())

    def known(self) -> Recovery | None:
        """What an earlier call recorded."""
        return self.place.read(RECOVERY, Recovery.from_json)

    @property
    def _reconstructed(self) -> str | None:
        """The name of the step that corrects weights, if there is one."""
        chosen = self.plan.chosen_reconstruction
        return None if chosen is None else REPAIRED if chosen == REPAIR else RECONSTRUCTED

    @property
    def _last(self) -> str:
        """The name of the last step, after which the network is delivered."""
        if self.plan.mimic:
            return MIMICKED
        return self._reconstructed or (RECALIBRATED if running_norms(self.inheritance.model) else INHERITED)

    def _earlier_networks(self, structure: Structure) -> Iterator[tuple[str, nn.Module]]:
        """The network after each step but the last, in order."""
        given = self.inheritance
        network = given.cut(structure).eval()
        if self._last != INHERITED:
            yield INHERITED, network
        if running_norms(network) and self._last != RECALIBRATED:
            recalibrated = copy_module(network)
            recalibrate(recalibrated, given.calibration)
            yield RECALIBRATED, recalibrated
        if self._reconstructed is not None and self.plan.mimic:
            yield self._reconstructed, given.network(structure)

    def _scored(self, name: str, network: nn.Module) -> RecoveryStep:
        data = self.task.data
        holdout = self.task.score_network(network, data.holdout)
        return RecoveryStep(name, holdout, self.task.score_network(network, data.test))


def features_of(graph: ChannelGraph, network: nn.Module, units: np.typing.NDArray[np.bool_]) -> Features | None:
    """The inputs of the last layer before the outputs: of the network's modules, the last that multiplies features.

    Layers that read the inputs of the network are skipped, such as a skip connection around all others: their inputs
    are the same in every network.

    Args:
        graph: the channel graph of the original; its layers are in the order of execution.
        network: the pruned network, which must have a module of the layer's name.
        units: a mask of the units that it keeps.
    """
    modules = dict(network.named_modules())
    for layer in reversed(graph.layers):
        module = modules.get(layer.name)
        if layer.input is not None and isinstance(module, PRODUCTS):
            kept = np.flatnonzero(stays(graph.lanes[layer.input], units))
            return Features(layer.name, -1 if isinstance(module, nn.Linear) else 1, torch.from_numpy(kept))
    return None
