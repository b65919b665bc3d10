"""prune: from a trained network to a smaller one, in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn

from aacp.cost.budget import Budget
from aacp.data.devices import device_of
from aacp.data.scores import Score
from aacp.data.splits import Data
from aacp.errors import InvalidOption
from aacp.pipeline.plan import DEFAULT, Plan, require_plan
from aacp.pipeline.preflight import check_training_arguments
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.pruning_run import PruningRun
from aacp.pipeline.ranks import Ranks
from aacp.pipeline.task import PruningTask
from aacp.pipeline.training import TrainingMeans
from aacp.runs.folder import RunFolder
from aacp.train.teaching import Loss
from aacp.user.code import without_exit
from aacp.user.options import known_options
from aacp.user.values import path_text, paths

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@known_options
@without_exit
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
    task = PruningTask.of(model, data, name, place, score, loss, teacher)
    earlier = paths("known_from", known_from)
    ranks = None if fabric is None else Ranks(fabric)
    means = TrainingMeans(again, processes, ranks)
    run = PruningRun(task, budget, plan, RunFolder.of(folder), means=means, known_from=earlier)
    return run.prune() if ranks is None else run.prune_on(ranks)
