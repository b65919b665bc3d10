"""TrainingRun: one training of the structure that a search found, from its first weights to its export.

Each stage writes its result to the folder of the training and is skipped if the result is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from torch import nn

from aacp.artefact.storage import load, save
from aacp.channels.graph import ChannelGraph
from aacp.cost.kinds import COSTS
from aacp.disk.folders import create_folder
from aacp.disk.tensors import tensors_in
from aacp.errors import (
    AACPError,
    DiskError,
    ExportFailed,
    InvalidExample,
    MissingPackage,
    RunLocked,
    RunMismatch,
    UnreadableFile,
    WorkerFailed,
)
from aacp.pipeline.delivery import add_resources, export_both, file_bytes, is_complete, set_aside_other_network
from aacp.pipeline.device_check import deliver_check, unchecked_limit
from aacp.pipeline.new_weights import first_network
from aacp.pipeline.plan import Plan
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.quantization import Quantization
from aacp.pipeline.ranks import Ranks
from aacp.pipeline.recovery import Recovering
from aacp.pipeline.reuse import usable_evaluation
from aacp.pipeline.shared_estimate import SharedEstimate
from aacp.pipeline.task import PruningTask
from aacp.pipeline.training_request import is_finished, record_failure
from aacp.pytorch.modules import copy_module
from aacp.runs.chosen import ChosenStructure
from aacp.runs.exports import ExportRecord
from aacp.runs.files import ARTEFACT, DEVICE_CHECK, EVALUATION, EXPORT, RECOVERY, STATE, TRAINING, WEIGHTS
from aacp.runs.folder import RunFolder
from aacp.runs.manifest import usable_manifest
from aacp.runs.mending import mend
from aacp.runs.scores import Evaluation
from aacp.runs.trainings import is_begun, read_training
from aacp.train.launching import run_in_processes
from aacp.train.loop import Trained, fit_made_again
from aacp.train.recipe import Precision
from aacp.train.threads import using_threads
from aacp.user.events import Event, emit
from aacp.user.progress import report_progress

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True, eq=False)
class TrainingMeans:
    """What a training uses besides the task and the plan.

    Args:
        again: replace a training of the same name that is finished, has failed or has other settings.
        processes: how many processes train together; they are started for the training.
        ranks: the processes of a fabric that the user launched, which train together; None if there is none.
    """

    again: bool = False
    processes: int = 1
    ranks: Ranks | None = None

    @property
    def fabric(self) -> Fabric | None:
        """The fabric that the user launched, if there is one."""
        return None if self.ranks is None else self.ranks.fabric

    @property
    def process_count(self) -> int:
        """How many processes train together, whoever started them."""
        return self.processes if self.fabric is None else int(self.fabric.world_size)


PLAIN = TrainingMeans()
# Errors that are none of the training: of a process, of the disk, or of a call that belongs to another training.
ACCIDENTS = (WorkerFailed, RunMismatch, RunLocked, UnreadableFile, DiskError, MissingPackage)
Training = Callable[..., Trained]  # `fit_made_again` with all arguments but the network, and the device or the fabric


def _train_share(fabric: Fabric, network: nn.Module, training: Training) -> None:
    """The part of a training that every process runs."""
    training(copy_module(network), fabric=fabric)  # a copy, because all processes share the memory of `network`


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """One training in its folder: its stages, in order."""

    task: PruningTask
    plan: Plan
    folder: RunFolder
    place: RunFolder  # the folder of the training, where its request is recorded
    shared: SharedEstimate
    means: TrainingMeans

    @property
    def is_trained(self) -> bool:
        """Whether an earlier call finished the training."""
        return (self.place.path / TRAINING / WEIGHTS).exists() or (self.place.path / ARTEFACT).exists()

    def run(self, graph: ChannelGraph, choice: ChosenStructure) -> Pruned:
        """Run all stages."""
        with using_threads(self._threads, self.task.device, self.place.path):
            self._prepare_folder(choice)
            network = self._train_or_record(graph, choice)
            self.save(graph, choice, network)
            evaluation = self.evaluate(graph, choice, network)
            exported, unexported = self.export(network, choice)
        return Pruned(network, graph, choice, evaluation, exported, self.folder, self.place, unexported)

    def follow(self, graph: ChannelGraph, choice: ChosenStructure, ranks: Ranks) -> Pruned:
        """What a rank other than 0 does: train with the others, and read the rest from the folder once it is there."""
        network = self.train(graph, choice)
        if self.plan.recipe is not None:
            ranks.wait_for_rank_0()  # rank 0 has written all results when this returns
        exported = self.place.read(EXPORT, ExportRecord.from_json)
        evaluation = Evaluation.from_json(self.place.read_json(EVALUATION))
        return Pruned(network, graph, choice, evaluation, exported, self.folder, self.place)

    @property
    def _threads(self) -> int:
        """The number of threads that the training began with; 0 if nothing is left to compute."""
        request = read_training(self.place.path)
        return 0 if request is None or is_finished(self.place.path) else request.threads

    def _prepare_folder(self, choice: ChosenStructure) -> None:
        """Reject or set aside files of another structure; remove results of a network that no longer exists."""
        manifest = usable_manifest(self.place.path)
        counts = None if manifest is None else manifest.counts
        if counts is not None and counts != choice.counts and is_begun(self.place.path):
            raise RunMismatch(
                f"{self.place.path} holds a training of the structure {list(counts)}, but the search chose "
                f"{list(choice.counts)}. Give this training another name (--as, or Plan.training), or replace the "
                "other (--again, or again=True)."
            )
        self.place.listing.bind(choice.counts)
        mend(RunFolder(self.place.path / TRAINING))
        set_aside_other_network(self.place, choice)
        if not is_begun(self.place.path):
            self.place.remove(EVALUATION, RECOVERY, EXPORT, DEVICE_CHECK)

    def _train_or_record(self, graph: ChannelGraph, choice: ChosenStructure) -> nn.Module:
        """The trained network. A failure is recorded and leaves the search as it is.

        A training that failed may be replaced without a question: one that is finished has not failed.
        """
        try:
            return self.train(graph, choice)
        except ACCIDENTS:  # the same command resumes the training
            raise
        except AACPError as error:
            if is_finished(self.place.path):
                raise
            record_failure(self.place, error)
            self._report_progress(
                "failed. The search is complete: the same command with other options of the training reuses it"
            )
            raise

    # -- stages -------------------------------------------------------------------------------------------------------

    def train(self, graph: ChannelGraph, choice: ChosenStructure) -> nn.Module:
        """The network with the structure that was found, trained by the recipe, in evaluation mode."""
        recipe = self.plan.recipe
        if recipe is None:
            return self._recover(graph, choice)
        if self._is_only_delivered:
            return self._delivered()
        inheritance = self.shared.inheritance(graph)
        self._begin_stage("train", "training")
        task = self.task
        train, holdout = task.training_parts(self.plan)
        # The state of a training replaces all weights, so that they are not made again, which may take long.
        has_begun = (self.place.path / TRAINING / STATE).exists()
        network = (
            inheritance.cut(choice.structure)
            if has_begun
            else first_network(task, self.plan, inheritance, choice.structure)
        )
        training = partial(
            fit_made_again, data=train, recipe=recipe, holdout=holdout, teacher=task.teacher_for(self.plan),
            loss=task.loss, score=task.score, folder=self.place.path / TRAINING,
        )  # fmt: skip
        has_weights = (self.place.path / TRAINING / WEIGHTS).exists()  # nothing is left for several processes to do
        if self.means.processes > 1 and not has_weights:
            self._train_in_processes(network, training, recipe.precision)
        elif self.means.ranks is None:
            training(network, device=task.device)
        else:
            with self.means.ranks.training():
                training(network, fabric=self.means.ranks.fabric)
        return network.eval()

    def _train_in_processes(self, network: nn.Module, training: Training, precision: Precision) -> None:
        """Train in new processes; the network gets the weights that they write to the folder."""
        device = self.task.device
        folder = self.place.path / TRAINING
        create_folder(folder)  # by the process that has locked the run folder, so that no link is followed
        run_in_processes(
            _train_share, network.cpu(), training,
            processes=self.means.processes, precision=precision, device=device, folder=folder,
        )  # fmt: skip
        network.load_state_dict(tensors_in(folder / WEIGHTS))
        network.to(device)

    @property
    def _is_only_delivered(self) -> bool:
        """Whether the trained network is there, but the state of its training is lost."""
        is_alone = self.means.ranks is None and not (self.place.path / TRAINING / STATE).exists()
        return is_alone and is_complete(self.place.path / ARTEFACT)

    def _recover(self, graph: ChannelGraph, choice: ChosenStructure) -> nn.Module:
        """The network without training: repaired as planned, or as an earlier call has saved it."""
        if is_complete(self.place.path / ARTEFACT):
            return self._delivered()
        self._begin_stage("train", "recovering without training")
        return self._recovering(graph).network(choice.structure)

    def _delivered(self) -> nn.Module:
        """The network of the file that an earlier call has saved."""
        return load(self.place.path / ARTEFACT, into=self.task.model).to(self.task.device)

    def _recovering(self, graph: ChannelGraph) -> Recovering:
        return Recovering(self.task, self.plan, self.shared.inheritance(graph), self.place)

    def save(self, graph: ChannelGraph, choice: ChosenStructure, network: nn.Module) -> None:
        """Write the network as safetensors, unless the file is there."""
        path = self.place.path / ARTEFACT
        if not path.exists():
            kept = self.shared.inheritance(graph).kept(choice.structure)
            save(network, graph, path, kept=kept, model=self.task.name, example=self.task.example())

    def evaluate(self, graph: ChannelGraph, choice: ChosenStructure, network: nn.Module) -> Evaluation:
        """The scores and costs of both networks."""
        known = usable_evaluation(self.place, graph, choice)
        if known is not None:
            return known
        self._begin_stage("evaluate", "evaluating")
        before = self.task.measure(self.task.model, graph, graph.full)
        after = self.task.measure(network, graph, choice.structure, trained_on_holdout=self.plan.train_on_holdout)
        if self.plan.recipe is None:
            self._recovering(graph).record(choice.structure, after)
        # Costs that the user defined were computed in the search; their functions may not be importable here.
        own = [limit for limit in choice.limits if limit.cost not in COSTS]
        before_costs = before.costs | {limit.cost: limit.full for limit in own}
        after_costs = after.costs | {limit.cost: limit.reached for limit in own}
        size = (self.place.path / ARTEFACT).stat().st_size
        evaluation = Evaluation(
            replace(before, costs=before_costs, file_bytes=file_bytes(self.task.model, graph)),
            replace(after, costs=after_costs, file_bytes=size),
        )
        self.place.write_json(EVALUATION, evaluation.to_json())
        return evaluation

    def export(self, network: nn.Module, choice: ChosenStructure) -> tuple[ExportRecord | None, str]:
        """Both networks as files of the runtimes; None if there are none, with the reason if the export failed.

        If the latency has to be checked on another device, nothing is timed here, and a folder for the check is added.
        """
        if not self.plan.export:
            return None, ""
        self._begin_stage("export", "exporting")
        task = self.task
        where = self.plan.deployment
        try:
            quantization = Quantization(task, self.plan) if where.is_quantized else None
            is_timed = unchecked_limit(choice) is None
            found = export_both(self.place, task.model, network, task.example(), where, quantization, is_timed)
            if found is not None:
                deliver_check(self.folder, self.place, choice, task, self.plan)
        except (ExportFailed, InvalidExample) as error:  # the other results are complete without an export
            return None, str(error)
        if found is None:
            self._report_progress("no export: install the packages with pip install 'aacp[onnx]'")
        return self._with_resources(found), ""

    def _with_resources(self, record: ExportRecord | None) -> ExportRecord | None:
        """The record of the export with memory and energy, if they were requested and can be measured."""
        if record is None or not self.plan.resources:
            return record
        try:
            return add_resources(self.place, record, self.task.example(), self.plan.deployment)
        except WorkerFailed as error:  # the other results are complete without this measurement
            self._report_progress(f"no memory and energy: {error}")
            return record

    def _begin_stage(self, name: str, message: str) -> None:
        emit(Event("stage", name, folder=str(self.place.path)))
        self._report_progress(message)

    def _report_progress(self, message: str) -> None:
        report_progress(f"{self.place.path}: {message}")
