"""Preflight: checks of a plan and its data before a search, and warnings about the unpruned network."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from aacp.data.batches import Batches
from aacp.data.examples import targets_of
from aacp.data.scores import accuracy
from aacp.data.splits import number_of_examples, sampled
from aacp.errors import InvalidData, InvalidOption
from aacp.estimate.recalibration import recalibrate, running_norms
from aacp.latency.deployment import HERE
from aacp.latency.resources import require_separate_process
from aacp.pipeline.data_check import read_batch
from aacp.pipeline.latency_stage import given_table
from aacp.pipeline.plan import Plan
from aacp.pipeline.request import read_request
from aacp.pipeline.task import PruningTask
from aacp.pytorch.modules import copy_module
from aacp.runs.files import STRUCTURE
from aacp.runs.folder import RunFolder
from aacp.train.loop import check_teacher
from aacp.train.mixing import check_mixing
from aacp.train.seeding import global_seed
from aacp.train.session import has_batch_norm
from aacp.train.sources import check_batches, has_own_batches
from aacp.train.teaching import Loss
from aacp.user.values import paths, score_text, whole_number

MEMORISED = 0.99  # an accuracy from which a network may have been trained on the data that it is scored on
SAMPLE = 2000  # the number of training examples that the hold-out is compared with
LEAST_GAIN = 0.01  # the smallest gain of accuracy by recalibration that is worth a warning
LABELS = 500  # the number of held-out labels in which the most frequent one is found


def check_training_arguments(teacher: nn.Module | None, loss: Loss | None, *, trains: bool) -> None:
    """Reject a teacher or a loss if nothing is trained, because only training uses them."""
    for what, given in (("teacher", teacher), ("loss", loss)):
        if given is not None and not trains:
            raise InvalidOption(
                f"A {what} is for training, but nothing would be trained. Give a plan with a recipe (and train=True "
                f"for a sweep), or leave the {what} out."
            )


def check_training(task: PruningTask, plan: Plan, processes: int) -> None:
    """Reject a recipe that the final training would reject, and data that it cannot train on."""
    train, _ = task.training_parts(plan)
    whole_number("processes", processes, 1)
    if plan.recipe is not None:
        check_mixing(plan.recipe, task.loss)
        if task.teacher is not None:
            check_teacher(plan.recipe, task.teacher)
        check_batches(train, plan.recipe, processes)
        size = getattr(train, "batch_size", None) if has_own_batches(train) else plan.recipe.batch_size
        if isinstance(size, int) and size // processes < 2 and has_batch_norm(task.model):
            raise InvalidData(
                f"A batch of {size} leaves at most one example for each process, but batch norm needs more for its "
                "statistics. Use a batch size of 2 or more per process."
            )


def check_scoring(task: PruningTask) -> str:
    """Score the unpruned network, so that data on which it cannot be scored are rejected before the search.

    Returns the scores as text, for progress messages.
    """
    read_batch(task, task.data.test, task.score is accuracy)
    found = []
    for part in (task.data.holdout, task.data.test):
        with global_seed(task.device, 0):  # so that this does not change the random numbers that are drawn later
            found.append(f"{score_text(task.score_network(task.model, part))} on {task.name_of(part)}")
    return ", ".join(found)


def warning_about_holdout(task: PruningTask, plan: Plan) -> str:
    """A warning if the network may have been trained on the hold-out, so that max_drop may find nothing; else "".

    The warning is given if the accuracy on the hold-out is nearly 100 % and not lower than that on training data. Test
    data would show it better, but no decision before the result may depend on them.
    """
    if plan.max_drop is None or plan.probe_epochs or task.score is not accuracy:
        return ""
    held = task.unpruned_holdout()
    if held < MEMORISED or held < task.unpruned_training(SAMPLE):
        return ""
    return (
        f"The unpruned network is right on {held:.1%} of the held-out data, no less than on its training data. If it "
        "was trained on both, every cut costs accuracy there, and max_drop may find nothing to remove. Hold out data "
        "that it was not trained on (aacp.Data(train, holdout, test)), allow a larger drop, score after a short "
        "training (--probe-epochs), or give limits instead."
    )


def warning_about_network(task: PruningTask) -> str:
    """A warning if the network is right no more often than one constant answer, within two standard errors; else "".

    Such a network lacks its weights, or the labels or inputs are not those that it was trained on.
    """
    if task.score is not accuracy:
        return ""
    batches = task.read(sampled(task.data.holdout, LABELS), LABELS, keep=False)
    labels = torch.cat([targets_of(batch).flatten() for batch in batches]).cpu().numpy()
    _, counts = np.unique(labels, return_counts=True)
    share = float(counts.max() / len(labels))
    held = task.unpruned_holdout()
    if len(counts) == 1 or held > share + 2 * math.sqrt(share * (1 - share) / len(labels)):
        return ""
    return (
        f"The unpruned network is right on {held:.1%} of the held-out data, and one constant answer on {share:.1%}. "
        "Check that its trained weights are given (--weights), that label k is the network's output k, and that "
        "the inputs are normalised as they were for its training."
    )


def warning_about_statistics(task: PruningTask, images: Batches) -> str:
    """A warning if recalibrated batch norms alone make the unpruned network better; else "".

    The difference must exceed two standard errors. Such statistics are those of other weights, as after averaging, and
    they spoil the teacher of a training and the aim of a repair.

    Args:
        task: the network and its data.
        images: the calibration images, which the search reads too.
    """
    if task.score is not accuracy or not running_norms(task.model):
        return ""
    held = task.unpruned_holdout()
    recalibrated = copy_module(task.model)
    with global_seed(task.device, 0):
        recalibrate(recalibrated.to(task.device), images)
        found = task.score_network(recalibrated, task.data.holdout)
    examples = number_of_examples(task.data.holdout)
    error = math.sqrt(held * (1 - held) / examples) if examples else 0.0
    if found <= held + max(2 * error, LEAST_GAIN):
        return ""
    return (
        f"The statistics of the network's batch norms do not fit its weights: recalibrated on training data, it is "
        f"right on {found:.1%} of the held-out data instead of {held:.1%}. Call aacp.recalibrate(model, data) on it "
        "and save it, then prune it."
    )


def warning_about_parts(task: PruningTask) -> str:
    """A warning if the hold-out is the training data or the test data; else ""."""
    data = task.data
    others = {"training data": data.train, "test data": data.test}
    shared = [name for name, part in others.items() if part is data.holdout]
    if len(shared) != 1:  # all are the same, as for inputs without any split
        return ""
    why = "scores would be too high" if shared == ["training data"] else "the search would be fitted to them"
    return (
        f"The hold-out is the {shared[0]}, so that {why}. Hold out a part of the training data, as "
        "aacp.Data.of(train, test) does."
    )


def check_deployment(plan: Plan) -> None:
    """Reject a deployment that this machine lacks, if networks are run there."""
    if plan.export:
        plan.deployment.require_device()
    if plan.resources:
        require_separate_process(plan.deployment)
    # Without the packages of the default runtime a run is complete, but has no exported files.
    is_exported_there = plan.export and plan.deployment.runtime != HERE.runtime
    if is_exported_there or plan.deployment.is_quantized:
        plan.deployment.resolved_runtime.require_installed()


def check_table(plan: Plan, folders: Sequence[RunFolder], model: nn.Module | None = None) -> None:
    """Reject a latency table that is missing or of another deployment, unless the searches of all folders are finished.

    Args:
        plan: its latency table and deployment are used.
        folders: the run folders.
        model: the network; None if it is not loaded yet.
    """
    if plan.latency_table is None or _are_searched(folders):
        return
    if not Path(plan.latency_table).exists():
        raise InvalidOption(
            f"There is no latency table {plan.latency_table}. Make it with aacp measure, or leave it out to have one "
            "measured."
        )
    given_table(plan, model)


def known_runs(known_from: Any, folders: Sequence[RunFolder]) -> tuple[str, ...]:
    """The folders whose evaluations are reused; one that holds no run is rejected, unless all searches are finished.

    Args:
        known_from: the folders.
        folders: the run folders of the searches; none if a search keeps nothing.
    """
    given = paths("known_from", known_from)
    if not _are_searched(folders):
        for path in given:
            read_request(RunFolder(path))
    return given


def _are_searched(folders: Sequence[RunFolder]) -> bool:
    """Whether there are run folders, and the searches of all of them are finished."""
    # os.path.exists: names that the system rejects are reported when the folder is made
    return bool(folders) and all(os.path.exists(folder.path / STRUCTURE) for folder in folders)
