"""prune: from a trained network to a smaller one, in stages.

Each stage leaves its result in the run folder and skips itself if it is there, so that the same call goes on where an
earlier one was stopped; a call that asks for something else is refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from aacp.artefact.header import ARTEFACT
from aacp.channels import ChannelGraph
from aacp.data.devices import device_of
from aacp.data.scores import Score, accuracy
from aacp.data.splits import Data
from aacp.errors import ExportFailed, InvalidExample, InvalidOption
from aacp.estimate.inheritance import Inheritance
from aacp.estimate.psae import PSAE
from aacp.graph.tracing import trace
from aacp.pipeline.delivery import export_both, file_bytes, save_network
from aacp.pipeline.latency_stage import LatencyStage
from aacp.pipeline.max_drop import MaxDropSearch
from aacp.pipeline.plan import DEFAULT, Plan
from aacp.pipeline.preflight import rehearse, rehearse_judging, rehearse_training
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.request import ask
from aacp.pipeline.searching import Search, known_of, remembering
from aacp.pipeline.targets import Asked, targets
from aacp.pipeline.task import PruningTask
from aacp.report.page import write_report
from aacp.runs.files import EVALUATION, GRAPH, RUN, STRUCTURE, TRAINING, ChosenStructure, Evaluation, OnnxRecord, Target
from aacp.runs.folder import RunFolder
from aacp.structure import Structure
from aacp.train.loop import check_teacher, finetune, train_from_scratch
from aacp.train.mixing import check_mixing
from aacp.train.sources import as_carried_out
from aacp.train.teaching import Loss


def prune(
    model: nn.Module,
    data: Data,
    budget: Asked,
    folder: str | os.PathLike[str],
    *,
    plan: Plan = DEFAULT,
    score: Score = accuracy,
    loss: Loss | None = None,
    teacher: nn.Module | None = None,
    known_from: Sequence[str | os.PathLike[str]] = (),
    name: str | None = None,
    device: torch.device | str | None = None,
    verbose: bool = False,
) -> Pruned:
    """Trace, search, inherit, train, evaluate, save and export; the same call again goes on where it was stopped.

    A budget is a share to remove or a most to keep, for each cost: {"macs": 0.5, "weight_bytes": "2MB"}. The model is
    not touched. The search sees the hold-out, training the training data, and the test data is looked at once, at the
    end. Of a `score`, a function of (network, batches), more is better; a `loss` of (outputs, targets) takes the place
    of cross-entropy. Without a `teacher`, a recipe with distillation is taught by the unpruned network. `known_from`
    are folders of earlier runs of the same network, whose evaluations this search takes over.
    """
    limits, known = targets(budget), tuple(map(str, known_from))
    plan.check_budgets([limits])
    for what, given in (("teacher", teacher), ("loss", loss)):
        if given is not None and plan.recipe is None:
            raise InvalidOption(f"A {what} is for training, but the plan has no recipe. Give one, or leave it out.")
    subject = PruningTask(model, data, name or type(model).__name__, device_of(device), score, loss=loss)
    return PruningRun(subject, limits, plan, RunFolder.of(folder), teacher, known, verbose).pruned()


class PruningRun:
    """A run in its folder: its stages, in order."""

    def __init__(
        self,
        subject: PruningTask,
        limits: tuple[Target, ...],
        plan: Plan,
        folder: RunFolder,
        teacher: nn.Module | None = None,
        known_from: tuple[str, ...] = (),
        verbose: bool = False,
    ) -> None:
        plan.check_drop(subject.score)
        if plan.recipe is not None:
            check_mixing(plan.recipe, subject.loss)
            plan = replace(plan, recipe=as_carried_out(plan.recipe, subject.data.train))
        self.subject, self.limits, self.plan, self.folder = subject, limits, plan, folder
        if teacher is not None and plan.recipe is not None:
            check_teacher(plan.recipe, teacher)
        subject.trained_on(plan)  # what cannot be trained on is refused before a search
        rehearse(subject, plan)
        if plan.export:
            plan.deployment.require_device()
        self.teacher, self.known_from, self.verbose = teacher, known_from, verbose
        self.estimate: PSAE | None = None  # once it is made; runs of one sweep share it
        self._inheritance: Inheritance | None = None  # made once per run; see `inheritance`
        self.measurements = folder  # of latency; runs of one sweep share them too
        self.unexported = ""  # why there are no ONNX files, if they could not be made
        self.may_keep_all = False  # whether limits that ask for nothing are limits; in a sweep they are

    def pruned(self) -> Pruned:
        """All stages."""
        with self.folder.lock():
            if self.folder.read_json(STRUCTURE) is None:
                self._say(self.plan.in_words)
                self._say(f"unpruned, {rehearse_judging(self.subject)}")
            graph, choice = self.found()
            network = self.trained(graph, choice)
            self.saved(graph, choice, network)
            evaluation = self.evaluated(graph, choice, network)
            exported = self.exported(network)
            self.reported()
            return Pruned(network, graph, choice, evaluation, exported, self.folder, self.unexported)

    def found(self) -> tuple[ChannelGraph, ChosenStructure]:
        """The stages that find a structure."""
        with self.folder.lock():
            if not (self.folder.path / RUN).exists():
                self.plan.require_table()
            ask(self.folder, self.subject, self.limits, self.plan, self.known_from)
            graph = self.traced()
            return graph, self.searched(graph)

    # -- stages -------------------------------------------------------------------------------------------------------

    def traced(self) -> ChannelGraph:
        known = self.folder.read_json(GRAPH)
        if known is not None:
            return ChannelGraph.from_json(known)
        self._say("tracing")
        graph = trace(self.subject.model, self.subject.example(), frozen=self.plan.frozen, scope=self.plan.scope)
        self.folder.write_json(GRAPH, graph.to_json())
        return graph

    def searched(self, graph: ChannelGraph) -> ChosenStructure:
        known = self.folder.read_json(STRUCTURE)
        if known is not None:
            return ChosenStructure.from_json(known)
        rehearse_training(self.subject, self.plan, graph)
        self._say("searching")
        lessons = known_of(self.known_from, self.subject, self.plan, graph)
        clock = self.clock(graph)
        table = clock.table_for(self.limits)
        search = Search(self.subject, graph, self.limits, self.plan, self.folder, lessons, clock, table, self.verbose)
        if not self.may_keep_all:
            search.require_demand()
        self.estimate = remembering(self.estimate or self.subject.estimate(self.inheritance(graph)), lessons)
        for note in self.estimate.notes:
            self._say(note)
        if self.plan.max_drop is None:
            choice, _ = search.run(self.estimate)
        else:
            choice = MaxDropSearch(search, self.estimate).smallest()
        self.subject.require_equal(graph, Structure(choice.counts))
        self.folder.write_json(STRUCTURE, choice.to_json())
        return choice

    def trained(self, graph: ChannelGraph, choice: ChosenStructure) -> nn.Module:
        network = self.inheritance(graph).network(choice.counts)
        if self.plan.recipe is None:
            return network.eval()
        self._say("training")
        place = self.folder.path / TRAINING
        train, holdout = self.subject.trained_on(self.plan)
        if self.plan.from_scratch:
            train_from_scratch(
                network, train, self.plan.recipe, holdout=holdout, loss=self.subject.loss,
                score=self.subject.score, folder=place, device=self.subject.device, verbose=self.verbose,
            )  # fmt: skip
        else:
            teacher = self.teacher or self.subject.teacher(self.plan.recipe)
            finetune(
                network, train, self.plan.recipe, teacher=teacher, holdout=holdout, loss=self.subject.loss,
                score=self.subject.score, folder=place, device=self.subject.device, verbose=self.verbose,
            )  # fmt: skip
        return network.eval()

    def saved(self, graph: ChannelGraph, choice: ChosenStructure, network: nn.Module) -> None:
        save_network(self.folder, network, graph, Structure(choice.counts), self.subject.name, self.subject.example())

    def evaluated(self, graph: ChannelGraph, choice: ChosenStructure, network: nn.Module) -> Evaluation:
        known = self.folder.read_json(EVALUATION)
        if known is not None:
            return Evaluation.from_json(known)
        self._say("evaluating")
        before = self.subject.measured(self.subject.model, graph, graph.full)
        knows = self.plan.train_on_holdout and self.plan.recipe is not None
        after = self.subject.measured(network, graph, Structure(choice.counts), knows_holdout=knows)
        size = (self.folder.path / ARTEFACT).stat().st_size
        evaluation = Evaluation(
            replace(before, file_bytes=file_bytes(self.subject.model)), replace(after, file_bytes=size)
        )
        self.folder.write_json(EVALUATION, evaluation.to_json())
        return evaluation

    def exported(self, network: nn.Module) -> OnnxRecord | None:
        if not self.plan.export:
            return None
        self._say("exporting")
        deployment, example = self.plan.deployment, self.subject.example()
        try:
            found = export_both(self.folder, self.subject.model, network, example, deployment)
        except (ExportFailed, InvalidExample) as error:  # all else is done, and worth having
            self.unexported = str(error)
            return None
        if found is None:
            self._say("no ONNX files: install them with pip install 'aacp[onnx]'")
        return found

    def reported(self) -> None:
        """The page is drawn anew each time: it costs a second, and shows what is there."""
        try:
            write_report([self.folder.path])
        except ImportError:  # machines for training alone may do without plotly
            self._say("no report, since plotly is not installed; aacp report draws it where it is")

    def inheritance(self, graph: ChannelGraph) -> Inheritance:
        """How a structure becomes a network in this run; the estimate's own, if there is an estimate."""
        if self._inheritance is None:
            made = self.estimate.inheritance if self.estimate is not None else None
            self._inheritance = made or self.subject.inheritance(graph, self.plan)
        return self._inheritance

    def clock(self, graph: ChannelGraph) -> LatencyStage:
        return LatencyStage(self.subject, graph, self.plan, self.measurements, self.verbose)

    def _say(self, stage: str) -> None:
        if self.verbose:
            sys.stderr.write(f"{self.folder.path}: {stage}\n")
