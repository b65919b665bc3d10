"""prune: from a trained network to a smaller one, in one call; PruningRun: the stages of a run in its folder.

Each stage writes its result to the run folder and is skipped if the result is there, so that the same call resumes an
interrupted run. A call with a different request for the search is rejected; trainings have requests of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.space import SearchSpace
from aacp.cost.budget import Budget
from aacp.cost.kinds import LATENCY
from aacp.data.devices import device_of
from aacp.data.scores import Score
from aacp.data.splits import Data
from aacp.errors import InvalidOption
from aacp.graph.tracing import trace
from aacp.pipeline.advice import advice_on_repair, advice_on_search, advice_on_workers
from aacp.pipeline.data_check import check_calibration, check_data
from aacp.pipeline.halving import Halving, require_finalists
from aacp.pipeline.latency_stage import LatencyStage
from aacp.pipeline.max_drop import MaxDropSearch
from aacp.pipeline.plan import DEFAULT, Plan, require_plan
from aacp.pipeline.preflight import (
    check_deployment,
    check_scoring,
    check_table,
    check_training,
    check_training_arguments,
    known_runs,
    warning_about_holdout,
    warning_about_network,
    warning_about_parts,
    warning_about_statistics,
)
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.quantization import check_quantization
from aacp.pipeline.ranks import Ranks
from aacp.pipeline.reporting import write_report_or_reason
from aacp.pipeline.request import register_request, require_room
from aacp.pipeline.reuse import list_histories, mend_search, usable_choice, usable_graph
from aacp.pipeline.searching import Search, known_evaluations
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.pipeline.training import PLAIN, TrainingMeans, TrainingRun
from aacp.pipeline.training_request import is_finished, register_training
from aacp.pipeline.trial_step import check_training_step
from aacp.pytorch.modules import with_gradients
from aacp.runs.chosen import ChosenStructure
from aacp.runs.files import GRAPH, RUN, STRUCTURE, TABLE
from aacp.runs.folder import RunFolder
from aacp.runs.requests import Request
from aacp.runs.trainings import training_folder
from aacp.train.sources import as_carried_out
from aacp.train.teaching import Loss
from aacp.train.threads import using_threads
from aacp.user.code import without_exit
from aacp.user.events import Event, emit
from aacp.user.options import known_options
from aacp.user.progress import report_progress, report_warning, without_progress
from aacp.user.values import path_text, score_text

if TYPE_CHECKING:
    from lightning_fabric import Fabric

NOTHING: Mapping[str, float] = {}


@known_options
@without_exit
@with_gradients
def prune(
    model: nn.Module,
    data: Data,
    budget: Budget | Mapping[str, float | str],
    folder: str | os.PathLike[str],
    *,
    plan: Plan = DEFAULT,
    score: Score | None = None,
    loss: Loss | None = None,
    teacher: nn.Module | None = None,
    again: bool = False,
    processes: int = 1,
    fabric: Fabric | None = None,
    known_from: Sequence[str | os.PathLike[str]] = (),
    name: str | None = None,
    device: torch.device | str | None = None,
) -> Pruned:
    """Trace, search, inherit, train, evaluate, save and export; the same call again resumes an interrupted run.

    A run folder holds one search and any number of trainings of the structure that it found, each with a name
    (`Plan.training`) and a request of its own: a call that differs only in how to train reuses the search. Without a
    recipe the default of `Plan.reconstruction` is another one, which the search depends on: give it to reuse a search.

    The search uses the hold-out and training uses the training data. The test data only score the result and, before
    the search, the unpruned network; no decision depends on them.

    Args:
        model: the trained network; it is not changed. If DataParallel or torch.compile wraps it, the network inside.
        data: what to train, search and test on.
        budget: limits that must all hold: a Budget, or for each cost a share to remove or a quantity to keep at most,
            such as {"macs": 0.5, "weight_bytes": "2MB"}.
        folder: the run folder, which is created if it does not exist.
        plan: how to search and train.
        score: judges a network, given (network, batches); a higher score is better. None is accuracy or, if the data
            have no labels, the likeness of the outputs to those of the unpruned network (1 is equal).
        loss: what training minimises, given (outputs, targets); None is cross-entropy.
        teacher: the network that a recipe with distillation learns from; None is the unpruned network.
        again: replace a training of the same name that is finished, failed or had other settings.
        processes: how many processes train together on this machine, with a GPU each; the search stays in this one.
            Network, data, loss and score are sent to them, so they must be picklable.
        fabric: a launched Lightning fabric, instead of `processes`: on one machine or several that share the folder.
            All of its processes call this with the same arguments. Rank 0 searches while the others wait, all of them
            train, and all get the result.
        known_from: folders of earlier runs of the same network, whose evaluations the search reuses.
        name: the name that `aacp.build_model` builds the unpruned network by. With it `aacp.load(folder)` needs nothing
            else, or trust=True if the name is that of your own function; without it, `aacp.load` needs a new network.
        device: where to compute; None is the GPU, if there is one.
    """
    require_plan(plan)
    path_text("folder", folder)
    budget = Budget.of(budget)
    plan.check_budgets([budget])
    check_training_arguments(teacher, loss, trains=plan.recipe is not None)
    if fabric is not None and (processes != 1 or device is not None):
        raise InvalidOption("A fabric has its own processes and devices. Leave processes and device out.")
    place = device_of(device) if fabric is None else fabric.device
    earlier = known_runs(known_from, [RunFolder.of(folder)])
    task = PruningTask.of(model, data, name, place, score, loss, teacher)
    ranks = None if fabric is None else Ranks(fabric)
    means = TrainingMeans(again, processes, ranks)
    run = PruningRun(task, budget, plan, RunFolder.of(folder), means=means, known_from=earlier)
    return run.prune() if ranks is None else run.prune_on(ranks)


class PruningRun:
    """A run in its folder: its stages, in order.

    Args:
        task: the network and its data.
        budget: the limits, already compared with the plan (`Plan.check_budgets`).
        plan: how to search and train.
        folder: where the run is kept.
        means: what the training uses besides the task and the plan.
        known_from: folders of earlier runs whose evaluations are reused.
        shared: the inheritance and the estimate, if several runs share them.
        measurements: the folder of latency measurements, if several runs share one.
        accepts_met_budget: accept a budget that the unpruned network already meets, as a sweep may contain one.
        is_searched: the search is finished, and its result is trained: finalists of the search are not compared again.
        label: the name of the run in progress messages; "" is the path of its folder.
    """

    def __init__(
        self,
        task: PruningTask,
        budget: Budget,
        plan: Plan,
        folder: RunFolder,
        *,
        means: TrainingMeans = PLAIN,
        known_from: tuple[str, ...] = (),
        shared: SharedEstimate | None = None,
        measurements: RunFolder | None = None,
        accepts_met_budget: bool = False,
        is_searched: bool = False,
        label: str = "",
    ) -> None:
        require_room(folder)
        check_table(plan, [folder], task.model)
        plan.check_drop(task.score)
        plan.check_screening(task.score)
        check_training(task, plan, means.process_count)
        if plan.recipe is not None and means.ranks is None:
            device_of(task.device, means.processes)  # rejects more processes than GPUs
        check_data(task, plan)
        check_deployment(plan)
        if plan.recipe is not None:
            plan = replace(plan, recipe=as_carried_out(plan.recipe, task.data.train, task.model))
        self.task = task
        self.budget = budget
        self.plan = plan
        self.folder = folder
        self.means = means
        self._is_mended = False
        self._lacks_history = False  # whether evaluations of a finished search are lost
        self._request: Request | None = None  # once it is registered
        self._training: TrainingRun | None = None  # once it is registered
        self.known_from = known_from
        self.shared = shared or SharedEstimate(task, plan)
        self._shares_estimate = shared is not None
        self.measurements = measurements or folder
        self.accepts_met_budget = accepts_met_budget
        self.is_searched = is_searched
        self.label = label or str(folder.path)

    def prune(self) -> Pruned:
        """All stages: the search, and one training of the structure that it finds."""
        with self.folder.lock():
            self.mend()
            is_searched = self.folder.read_json(STRUCTURE) is not None
            is_finished_before = is_finished(training_folder(self.folder.path, self.plan.training_name))
            if not (is_searched and is_finished_before) or self.means.again:
                scores = check_scoring(self.task)
            if not is_searched:
                self._report_progress(self.plan.summary)
                self._report_progress(str(self.task.data))
                self._report_progress(f"unpruned, {scores}")
                self._warn(warning_about_parts(self.task))
                self._warn(warning_about_holdout(self.task, self.plan))
            self.register()
            training = self.register_training()  # before the search, so that its mistakes are found now
            graph, choice = self.find()
            pruned = training.run(graph, choice)
            # The page takes a second, so that every call writes it.
            pruned = replace(pruned, unreported=write_report_or_reason(self.folder))
            self._report_stage("done", pruned.evaluation.values)
            return pruned

    def prune_on(self, ranks: Ranks) -> Pruned:
        """All stages on all ranks of a fabric: rank 0 runs them, and the others train with it."""
        if ranks.leads:
            with ranks.leading():
                return self.prune()
        ranks.wait_for_rank_0()
        graph = self.trace()  # rank 0 has written it
        choice = ChosenStructure.from_json(self.folder.read_json(STRUCTURE))
        place = RunFolder(training_folder(self.folder.path, self.plan.training_name))
        training = TrainingRun(self.task, self.plan, self.folder, place, self.shared, self.means)
        with without_progress():
            return training.follow(graph, choice, ranks)

    def find(self) -> tuple[ChannelGraph, ChosenStructure]:
        """The stages up to the structure: trace and search. Evaluations that are lost are repeated."""
        with self.folder.lock():
            self.mend()
            request = self.register()
            graph = self.trace()
            written = usable_choice(self.folder, graph, self.budget)
            if written is None:
                require_finalists(self.folder, request, self.plan)
                return graph, self.search(graph, request)
            if self._lacks_history:
                self._resume_search(graph, request)  # for the evaluations that are lost; the choice stands
                list_histories(self.folder)
                self._lacks_history = False
            if self._training is not None and not self._training.is_trained:
                check_training_step(self.task, self.plan, graph, self.means.fabric)
            return graph, written

    def mend(self) -> None:
        """Make the folder agree with its manifest, once, before the result of a stage is used."""
        if not self._is_mended:
            self._is_mended = True
            self._lacks_history = mend_search(self.folder)

    def register(self) -> Request:
        """Record the request of the search, or check that it is the recorded one."""
        if self._request is None:
            if not (self.folder.path / RUN).exists():
                self.plan.require_workers()
            self._request = register_request(
                self.folder, self.task, self.budget, self.plan, self.known_from, self.is_searched
            )
        return self._request

    def register_training(self) -> TrainingRun:
        """Record the request of the training, or check that it is the recorded one."""
        if self._training is None:
            if self.means.again and self.folder.read_json(STRUCTURE) is not None:
                self.mend()
                check_training_step(self.task, self.plan, self.trace(), self.means.fabric)  # before one is removed
            place = register_training(self.folder, self.task, self.plan, self.means.again)
            self._training = TrainingRun(self.task, self.plan, self.folder, place, self.shared, self.means)
        return self._training

    # -- stages -------------------------------------------------------------------------------------------------------

    def trace(self) -> ChannelGraph:
        """The channel graph of the network."""
        known = usable_graph(self.folder)
        if known is not None:
            return known
        self._report_progress("tracing")
        self._report_stage("trace")
        plan = self.plan
        example = self.task.example()
        graph = trace(
            self.task.model,
            example,
            frozen=plan.frozen,
            scope=plan.traced_scope,
            tie=plan.tie,
            parts=plan.parts or None,
        )
        self.folder.write_json(GRAPH, graph.to_json())
        self._report_progress(f"{graph.free_share:.0%} of the channels of convolutions can be pruned")
        self._report_notes(*graph.notes)
        return graph

    def search(self, graph: ChannelGraph, request: Request) -> ChosenStructure:
        """The best structure within the budget; `request` names the runs whose evaluations are reused."""
        return self.record_choice(graph, self._resume_search(graph, request))

    def record_choice(self, graph: ChannelGraph, choice: ChosenStructure) -> ChosenStructure:
        """Write the choice of the search with the score of the unpruned network, after its cut was verified."""
        self.task.require_equal(self.shared.inheritance(graph), choice.structure)
        choice = replace(choice, unpruned=self.task.unpruned_holdout())
        self.folder.write_json(STRUCTURE, choice.to_json())
        return choice

    def _resume_search(self, graph: ChannelGraph, request: Request) -> ChosenStructure:
        """The choice of the search, resumed from what the folder holds, with the threads that it began with."""
        try:
            with using_threads(request.threads, self.task.device, self.folder.path):
                return self._search(graph, request)
        finally:
            if not self._shares_estimate:  # that of a sweep stays for its next search
                self.shared.release()

    def _search(self, graph: ChannelGraph, request: Request) -> ChosenStructure:
        latency = self.latency_stage(graph)
        self._check_search(graph, latency)
        self._report_stage("search")
        known = known_evaluations(request, graph)
        table = latency.table_for(self.budget)
        if table is not None and table.elsewhere:
            table.save(self.folder.path / TABLE)  # for the check on the device
        self.shared.prepare_workers(graph)
        search = Search(self.task, graph, self.budget, self.plan, self.folder, known, latency, self.shared, table)
        if latency.needs_demand:
            search.require_demand()
        search.bound_budget.check(search.space)
        self.shared.add_known(graph, known)
        self._report_notes(*search.estimate.notes)
        if self.plan.max_drop is not None:
            return MaxDropSearch(search).run()
        found = search.run()
        if self.plan.finalists is None:
            return found.choice
        return Halving(replace(search, table=found.table), self.label).run(found.choice, found.history)

    def _check_search(self, graph: ChannelGraph, latency: LatencyStage) -> None:
        """Reject what would fail during the search or after it, and say what is worth knowing before it."""
        check_quantization(self.task, self.plan, graph)
        self._report_notes(latency.step_note)
        space = SearchSpace(graph, latency.find_steps())
        self.budget.without(LATENCY).on(graph).check(space)  # what needs no latency table is checked first
        check_training_step(self.task, self.plan, graph, self.means.fabric)
        images = self.shared.inheritance(graph).calibration
        check_calibration(self.plan, images)
        self._report_progress(
            f"searching; the score of the unpruned network is {score_text(self.task.unpruned_holdout())}"
        )
        self._warn(warning_about_network(self.task))
        self._warn(warning_about_statistics(self.task, images))
        advice = advice_on_search(self.budget, self.plan), advice_on_repair(self.plan), advice_on_workers(self.plan)
        self._report_notes(*advice)

    def latency_stage(self, graph: ChannelGraph) -> LatencyStage:
        """The latency measurements of this run."""
        needs_demand = not self.accepts_met_budget and self.plan.max_drop is None
        return LatencyStage(self.task, graph, self.plan, self.measurements, needs_demand)

    def _report_stage(self, name: str, values: Mapping[str, float] = NOTHING) -> None:
        emit(Event("stage", name, values=values, folder=str(self.folder.path)))

    def _report_notes(self, *notes: str) -> None:
        """Report sentences; an empty one says that there is nothing to report."""
        for note in filter(None, notes):
            self._report_progress(note)

    def _warn(self, warning: str) -> None:
        """Report a warning, once for all runs of a task; an empty one says that there is none."""
        if warning and warning not in self.task.warnings:
            self.task.warnings.add(warning)
            report_warning(f"{self.label}: {warning}")

    def _report_progress(self, message: str) -> None:
        report_progress(f"{self.label}: {message}")
