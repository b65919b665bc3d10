"""prune: from a trained network to a smaller one, in stages.

Each stage leaves its result in the run folder and skips itself if it is there, so that the same call goes on where an
earlier one was stopped; a call that asks for something else is refused.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from aacp.channels import ChannelGraph
from aacp.cost.analytic import activation_bytes, macs, params
from aacp.cost.budget import Budget, Limit
from aacp.data.batches import Batches
from aacp.data.scores import Score, accuracy
from aacp.data.splits import Data
from aacp.delivery import ARTEFACT, export_both, save_network, weight_bytes
from aacp.errors import UntraceableModel
from aacp.estimate.inheritance import inherit
from aacp.estimate.psae import PSAE
from aacp.estimate.recalibration import recalibrate
from aacp.folder import RunFolder
from aacp.graph.tracing import prepare, trace
from aacp.plan import Plan
from aacp.records import EVALUATION, GRAPH, STRUCTURE, TRAINING, Choice, Evaluation, Measured, Reached
from aacp.report.page import FILE, write_report
from aacp.request import ask
from aacp.search.loop import run_search
from aacp.search.methods import searcher
from aacp.space import SearchSpace
from aacp.structure import Structure
from aacp.train.loop import finetune, train_from_scratch

COSTS = {"macs": macs, "params": params, "activation_bytes": activation_bytes}


@dataclass(frozen=True)
class Pruned:
    """The smaller network, what it was cut to, and how it compares."""

    network: nn.Module
    graph: ChannelGraph
    choice: Choice
    evaluation: Evaluation
    folder: RunFolder

    @property
    def report(self) -> Path:
        return self.folder.path / FILE

    def __str__(self) -> str:
        before, after = self.evaluation.before, self.evaluation.after
        lines = [f"{name}: {_change(getattr(before, name), getattr(after, name))}" for name in COSTS]
        lines += [
            f"{part} score: {getattr(before, part):.4f} -> {getattr(after, part):.4f}" for part in ("test", "holdout")
        ]
        return "\n".join([*lines, f"kept: {list(self.choice.counts)}", f"folder: {self.folder.path}"])


def _change(before: float, after: float) -> str:
    return f"{before:,} -> {after:,} ({after / before - 1:+.1%})"


def prune(
    model: nn.Module,
    data: Data,
    plan: Plan,
    folder: str | os.PathLike[str],
    *,
    score: Score = accuracy,
    teacher: nn.Module | None = None,
    name: str | None = None,
    device: torch.device | str | None = None,
    verbose: bool = False,
) -> Pruned:
    """Trace, search, inherit, train, evaluate and save; the same call again goes on where it was stopped.

    The model is not touched. The search sees the hold-out, training the training data, and the test data is looked at
    once, at the end. Without a `teacher`, fine-tuning is taught by the unpruned network.
    """
    place = RunFolder.of(folder)
    with place.lock():
        return _Run(model, data, plan, place, score, teacher, name, device, verbose).pruned()


class _Run:
    """One call of `prune`: its stages, in order."""

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        plan: Plan,
        folder: RunFolder,
        score: Score,
        teacher: nn.Module | None,
        name: str | None,
        device: torch.device | str | None,
        verbose: bool,
    ) -> None:
        self.model, self.data, self.plan, self.folder, self.score = model, data, plan, folder, score
        self.teacher, self.name, self.verbose = teacher or model, name or type(model).__name__, verbose
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))

    def pruned(self) -> Pruned:
        ask(self.folder, self.model, self.name, self.data, self.plan, self.score)
        graph = self.traced()
        choice = self.searched(graph)
        network = self.trained(graph, choice)
        self.saved(graph, choice, network)
        evaluation = self.evaluated(graph, choice, network)
        self.exported(network)
        self.reported()
        return Pruned(network, graph, choice, evaluation, self.folder)

    # -- stages -------------------------------------------------------------------------------------------------------

    def traced(self) -> ChannelGraph:
        known = self.folder.read_json(GRAPH)
        if known is not None:
            return ChannelGraph.from_json(known)
        self._say("tracing")
        graph = trace(self.model, self._example(), frozen=self.plan.frozen, scope=self.plan.scope)
        self.folder.write_json(GRAPH, graph.to_json())
        return graph

    def searched(self, graph: ChannelGraph) -> Choice:
        known = self.folder.read_json(STRUCTURE)
        if known is not None:
            return Choice.from_json(known)
        self._say("searching")
        space, budget = SearchSpace(graph, self.plan.pruning_step), self._budget(graph)
        method = searcher(self.plan.method, space, budget, self.plan.seed)
        found = run_search(
            method, self._estimate(graph), evaluations=self.plan.evaluations, folder=self.folder, verbose=self.verbose
        )
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        chosen = found.recommended
        self._check(graph, chosen.structure)
        limits = tuple(Reached.of(limit, chosen.structure) for limit in budget.limits)
        choice = Choice(chosen.structure.counts, chosen.score, limits)
        self.folder.write_json(STRUCTURE, choice.to_json())
        return choice

    def trained(self, graph: ChannelGraph, choice: Choice) -> nn.Module:
        network = inherit(self.model, graph, choice.counts, importance=self.plan.importance, seed=self.plan.seed).to(
            self.device
        )
        recalibrate(network, self._calibration())
        if self.plan.recipe is None:
            return network.eval()
        self._say("training")
        place = self.folder.path / TRAINING
        if self.plan.from_scratch:
            train_from_scratch(
                network, self.data.train, self.plan.recipe, holdout=self.data.holdout, score=self.score, folder=place,
                device=self.device, verbose=self.verbose,
            )  # fmt: skip
        else:
            finetune(
                network, self.data.train, self.plan.recipe, teacher=self.teacher, holdout=self.data.holdout,
                score=self.score, folder=place, device=self.device, verbose=self.verbose,
            )  # fmt: skip
        return network.eval()

    def saved(self, graph: ChannelGraph, choice: Choice, network: nn.Module) -> None:
        save_network(self.folder, network, graph, Structure(choice.counts), self.name, self._example())

    def exported(self, network: nn.Module) -> None:
        if export_both(self.folder, self.model, network, self._example()) is None:
            self._say("no ONNX files: install them with pip install 'aacp[onnx]'")

    def evaluated(self, graph: ChannelGraph, choice: Choice, network: nn.Module) -> Evaluation:
        known = self.folder.read_json(EVALUATION)
        if known is not None:
            return Evaluation.from_json(known)
        self._say("evaluating")
        structures = (graph.full, Structure(choice.counts))
        before, after = (
            self._measured(each, graph, structure)
            for each, structure in zip((self.model, network), structures, strict=True)
        )
        size = (self.folder.path / ARTEFACT).stat().st_size
        evaluation = Evaluation(replace(before, file_bytes=weight_bytes(self.model)), replace(after, file_bytes=size))
        self.folder.write_json(EVALUATION, evaluation.to_json())
        return evaluation

    def reported(self) -> None:
        """The page is drawn anew each time: it costs a second, and shows what is there."""
        try:
            write_report([self.folder.path])
        except ImportError:  # machines for training alone may do without plotly
            self._say("no report, since plotly is not installed; aacp report draws it where it is")

    # -- what stages need ---------------------------------------------------------------------------------------------

    def _example(self) -> Any:
        return next(Batches.of(self.data.holdout, batch_size=2, images=2).inputs())

    def _calibration(self) -> Batches:
        return Batches.of(self.data.train, images=self.plan.calibration_images, device=self.device)

    def _budget(self, graph: ChannelGraph) -> Budget:
        limits = (Limit(COSTS[t.cost](graph), t.pruning_rate, t.at_most) for t in self.plan.limits)
        return Budget(*limits)

    def _estimate(self, graph: ChannelGraph) -> PSAE:
        return PSAE(
            self.model, graph, calibration=self._calibration(), holdout=self.data.holdout, score=self.score,
            importance=self.plan.importance, seed=self.plan.seed, device=self.device,
        )  # fmt: skip

    def _check(self, graph: ChannelGraph, structure: Structure) -> None:
        """The very structure that is delivered, cut and compared with the masked original."""
        difference = prepare(self.model, self._example(), graph.form).difference_when(
            graph, graph.kept_units(structure)
        )
        if difference is not None:
            raise UntraceableModel(
                f"The network cut to {list(structure)} does not compute what the masked one does: {difference}. "
                "Freeze the parts that changed last, and report this network to us."
            )

    def _measured(self, network: nn.Module, graph: ChannelGraph, structure: Structure) -> Measured:
        """Scores and costs of a network; it goes back to where it was."""
        home = next((parameter.device for parameter in network.parameters()), self.device)
        modes = {module: module.training for module in network.modules()}
        network.to(self.device).eval()
        test, holdout = (
            self.score(network, Batches.of(part, device=self.device)) for part in (self.data.test, self.data.holdout)
        )
        network.to(home)
        for module, mode in modes.items():
            module.training = mode
        costs = {name: int(cost(graph)(np.asarray(structure))) for name, cost in COSTS.items()}
        return Measured(float(test), float(holdout), **costs)

    def _say(self, stage: str) -> None:
        if self.verbose:
            sys.stderr.write(f"{self.folder.path}: {stage}\n")
