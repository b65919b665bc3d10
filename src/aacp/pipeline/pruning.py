"""prune: from a trained network to a smaller one, in stages.

Each stage writes its result to the run folder and is skipped if the result is there, so that the same call resumes an
interrupted run. A call with a different request is rejected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import nn

from aacp.artefact.header import ARTEFACT
from aacp.channels import ChannelGraph
from aacp.cost.budget import Budget
from aacp.cost.kinds import COSTS, LATENCY
from aacp.data.devices import device_of
from aacp.data.scores import Score, accuracy
from aacp.data.splits import Data
from aacp.errors import ExportFailed, InvalidExample, InvalidOption, MissingPackage
from aacp.graph.tracing import trace
from aacp.pipeline.delivery import export_both, file_bytes, save_network
from aacp.pipeline.latency_stage import LatencyStage
from aacp.pipeline.max_drop import MaxDropSearch
from aacp.pipeline.plan import DEFAULT, Plan
from aacp.pipeline.preflight import check_data, check_scoring, check_training, check_training_step
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.request import register_request
from aacp.pipeline.searching import Search, known_evaluations
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.report.page import write_report
from aacp.runs.files import (
    EVALUATION,
    GRAPH,
    RUN,
    STRUCTURE,
    TRAINING,
    ChosenStructure,
    Evaluation,
    OnnxRecord,
    Request,
)
from aacp.runs.folder import RunFolder
from aacp.space import SearchSpace
from aacp.train.loop import finetune, train_from_scratch
from aacp.train.sources import as_carried_out
from aacp.train.teaching import Loss


def prune(
    model: nn.Module,
    data: Data,
    budget: Budget | Mapping[str, float | str],
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
    """Trace, search, inherit, train, evaluate, save and export; the same call again resumes an interrupted run.

    The search uses the hold-out and training uses the training data. The test data only score the result and, before
    the search, the unpruned network; no decision depends on them.

    Args:
        model: the trained network; it is not changed.
        data: what to train, search and test on.
        budget: limits that must all hold: a Budget, or for each cost a share to remove or a quantity to keep at most,
            such as {"macs": 0.5, "weight_bytes": "2MB"}.
        folder: the run folder, which is created if it does not exist.
        plan: how to search and train.
        score: judges a network, given (network, batches); a higher score is better.
        loss: what training minimises, given (outputs, targets); None is cross-entropy.
        teacher: the network that a recipe with distillation learns from; None is the unpruned network.
        known_from: folders of earlier runs of the same network, whose evaluations the search reuses.
        name: the name that `aacp.build_model` builds the unpruned network by. With it `aacp.load(folder)` needs nothing
            else; without it, `aacp.load` needs a fresh network.
        device: where to compute; None is the GPU, if there is one.
        verbose: report progress on the standard error output.
    """
    budget = Budget.of(budget)
    plan.check_budgets([budget])
    for what, given in (("teacher", teacher), ("loss", loss)):
        if given is not None and plan.recipe is None:
            raise InvalidOption(f"A {what} is for training, but the plan has no recipe. Give one, or leave it out.")
    task = PruningTask(model, data, name, device_of(device), score, loss=loss)
    earlier = tuple(map(str, known_from))
    run = PruningRun(task, budget, plan, RunFolder.of(folder), teacher=teacher, known_from=earlier, verbose=verbose)
    return run.prune()


class PruningRun:
    """A run in its folder: its stages, in order.

    Args:
        task: the network and its data.
        budget: the limits, already compared with the plan (`Plan.check_budgets`).
        plan: how to search and train.
        folder: where the run is kept.
        teacher: the network that a recipe with distillation learns from; None is the unpruned network.
        known_from: folders of earlier runs whose evaluations are reused.
        shared: the inheritance and the estimate, if several runs share them.
        measurements: the folder of latency measurements, if several runs share one.
        accepts_met_budget: accept a budget that the unpruned network already meets, as a sweep may contain one.
        verbose: report progress on the standard error output.
    """

    def __init__(
        self,
        task: PruningTask,
        budget: Budget,
        plan: Plan,
        folder: RunFolder,
        *,
        teacher: nn.Module | None = None,
        known_from: tuple[str, ...] = (),
        shared: SharedEstimate | None = None,
        measurements: RunFolder | None = None,
        accepts_met_budget: bool = False,
        verbose: bool = False,
    ) -> None:
        plan.check_drop(task.score)
        check_training(task, plan, teacher)
        check_data(task, plan)
        if plan.export:
            plan.deployment.require_device()
        if plan.recipe is not None:
            plan = replace(plan, recipe=as_carried_out(plan.recipe, task.data.train))
        self.task = task
        self.budget = budget
        self.plan = plan
        self.folder = folder
        self.teacher = teacher
        self.known_from = known_from
        self.shared = shared or SharedEstimate(task, plan)
        self.measurements = measurements or folder
        self.accepts_met_budget = accepts_met_budget
        self.verbose = verbose

    def prune(self) -> Pruned:
        """All stages."""
        with self.folder.lock():
            if self.folder.read_json(STRUCTURE) is None:
                self._report_progress(self.plan.summary)
                self._report_progress(f"unpruned, {check_scoring(self.task)}")
            graph, choice = self.find()
            network = self.train(graph, choice)
            self.save(graph, choice, network)
            evaluation = self.evaluate(graph, choice, network)
            exported, unexported = self.export(network)
            self.report()
            return Pruned(network, graph, choice, evaluation, exported, self.folder, unexported)

    def find(self) -> tuple[ChannelGraph, ChosenStructure]:
        """The stages up to the structure: trace and search."""
        with self.folder.lock():
            if not (self.folder.path / RUN).exists():
                self.plan.require_table()
            request = register_request(self.folder, self.task, self.budget, self.plan, self.known_from)
            graph = self.trace()
            return graph, self.search(graph, request)

    # -- stages -------------------------------------------------------------------------------------------------------

    def trace(self) -> ChannelGraph:
        """The channel graph of the network."""
        known = self.folder.read_json(GRAPH)
        if known is not None:
            return ChannelGraph.from_json(known)
        self._report_progress("tracing")
        plan = self.plan
        example = self.task.example()
        graph = trace(self.task.model, example, frozen=plan.frozen, scope=plan.traced_scope, tie=plan.tie)
        self.folder.write_json(GRAPH, graph.to_json())
        return graph

    def search(self, graph: ChannelGraph, request: Request) -> ChosenStructure:
        """The best structure within the budget; `request` names the runs whose evaluations are reused."""
        written = self.folder.read_json(STRUCTURE)
        if written is not None:
            return ChosenStructure.from_json(written)
        latency = self.latency_stage(graph)
        space = SearchSpace(graph, latency.find_steps())
        self.budget.without(LATENCY).on(graph).check(space)  # what needs no latency table is checked first
        check_training_step(self.task, self.plan, graph)
        self._report_progress("searching")
        known = known_evaluations(request, graph)
        table = latency.table_for(self.budget)
        search = Search(self.task, graph, self.budget, self.plan, self.folder, known, latency, table, self.verbose)
        if not self.accepts_met_budget:
            search.require_demand()
        search.bound_budget.check(space)
        estimate = self.shared.estimate(graph, known)
        for note in estimate.notes:
            self._report_progress(note)
        if self.plan.max_drop is None:
            choice, _ = search.run(estimate)
        else:
            choice = MaxDropSearch(search, estimate).run()
        self.task.require_equal(self.shared.inheritance(graph), choice.structure)
        choice = replace(choice, unpruned=self.task.unpruned_holdout())
        self.folder.write_json(STRUCTURE, choice.to_json())
        return choice

    def train(self, graph: ChannelGraph, choice: ChosenStructure) -> nn.Module:
        """The network with the structure that was found, trained by the recipe, in evaluation mode."""
        network = self.shared.inheritance(graph).network(choice.structure)
        if self.plan.recipe is None:
            return network.eval()
        self._report_progress("training")
        task = self.task
        folder = self.folder.path / TRAINING
        train, holdout = task.training_parts(self.plan)
        if self.plan.from_scratch:
            train_from_scratch(
                network, train, self.plan.recipe, holdout=holdout, loss=task.loss, score=task.score, folder=folder,
                device=task.device, verbose=self.verbose,
            )  # fmt: skip
        else:
            finetune(
                network, train, self.plan.recipe, teacher=self.teacher or task.teacher(self.plan.recipe),
                holdout=holdout, loss=task.loss, score=task.score, folder=folder, device=task.device,
                verbose=self.verbose,
            )  # fmt: skip
        return network.eval()

    def save(self, graph: ChannelGraph, choice: ChosenStructure, network: nn.Module) -> None:
        """Write the network as safetensors."""
        kept = self.shared.inheritance(graph).kept(choice.structure)
        save_network(self.folder, network, graph, kept, self.task.name, self.task.example())

    def evaluate(self, graph: ChannelGraph, choice: ChosenStructure, network: nn.Module) -> Evaluation:
        """The scores and costs of both networks."""
        known = self.folder.read_json(EVALUATION)
        if known is not None:
            return Evaluation.from_json(known)
        self._report_progress("evaluating")
        knows_holdout = self.plan.train_on_holdout and self.plan.recipe is not None
        before = self.task.measure(self.task.model, graph, graph.full)
        after = self.task.measure(network, graph, choice.structure, knows_holdout=knows_holdout)
        # Costs that the user defined were computed in the search; their functions may not be importable here.
        own = [limit for limit in choice.limits if limit.cost not in COSTS]
        before_costs = before.costs | {limit.cost: limit.full for limit in own}
        after_costs = after.costs | {limit.cost: limit.reached for limit in own}
        size = (self.folder.path / ARTEFACT).stat().st_size
        evaluation = Evaluation(
            replace(before, costs=before_costs, file_bytes=file_bytes(self.task.model)),
            replace(after, costs=after_costs, file_bytes=size),
        )
        self.folder.write_json(EVALUATION, evaluation.to_json())
        return evaluation

    def export(self, network: nn.Module) -> tuple[OnnxRecord | None, str]:
        """Both networks as ONNX files, or None and the reason why there are none."""
        if not self.plan.export:
            return None, ""
        self._report_progress("exporting")
        try:
            found = export_both(self.folder, self.task.model, network, self.task.example(), self.plan.deployment)
        except (ExportFailed, InvalidExample) as error:  # the other results are complete without it
            return None, str(error)
        if found is None:
            self._report_progress("no ONNX files: install the packages with pip install 'aacp[onnx]'")
        return found, ""

    def report(self) -> None:
        """Write the page about the run, anew in every call, since it takes a second."""
        try:
            write_report([self.folder.path])
        except MissingPackage as error:
            self._report_progress(f"no report. {error}")

    def latency_stage(self, graph: ChannelGraph) -> LatencyStage:
        """The latency measurements of this run."""
        return LatencyStage(self.task, graph, self.plan, self.measurements, self.verbose)

    def _report_progress(self, message: str) -> None:
        if self.verbose:
            sys.stderr.write(f"{self.folder.path}: {message}\n")
