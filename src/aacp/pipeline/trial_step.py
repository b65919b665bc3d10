"""A step of training before the search, to find errors of the loss, the teacher and the recipe."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.data.examples import call, inputs_of, targets_of, tensors_in
from aacp.errors import AACPError, InvalidData, InvalidLoss, InvalidOption, first_line, is_device_failure
from aacp.graph.surgery import shrink
from aacp.pipeline.data_check import described
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.pytorch.modules import copy_module
from aacp.train.fabric import SINGLE, make_fabric, single_precision
from aacp.train.loader_batches import check_targets, require_no_ignored
from aacp.train.mixing import mixed
from aacp.train.optimisers import optimiser_for, trained_parameters
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.train.teaching import Objective, are_classes
from aacp.user.code import described_failure

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.precision import Precision as FabricPrecision

MAX_STEP_EXAMPLES = 32  # the most examples in the step of training that is tried


def check_training_step(task: PruningTask, plan: Plan, graph: ChannelGraph, fabric: Fabric | None = None) -> None:
    """Train one step with the full network and with half of every width, to find errors before the search.

    Args:
        task: the network and its data.
        plan: its recipe is used.
        graph: the network's channel graph.
        fabric: the fabric that the user launched, whose precision training has; None for that of the recipe.
    """
    if plan.recipe is None:
        return
    trained_parameters(task.model)  # rejects a network without any
    size = min(MAX_STEP_EXAMPLES, plan.recipe.batch_size)
    batch = next(iter(task.read(task.data.train, size)))
    problem = None
    if task.teacher is not None and isinstance(plan.recipe.heads, str):  # heads with names are compared in the step
        problem = _problem_of_teacher(task, task.teacher, batch)
    teaching = copy_module(task.model if task.teacher is None else task.teacher)
    precision = (fabric or make_fabric(plan.recipe.precision, task.device)).strategy.precision
    found = problem or _loss_of_a_step(task, plan.recipe, copy_module(task.model), batch, teaching, precision)
    if isinstance(found, str):
        if problem is None and precision.precision != SINGLE:
            single = single_precision()
            again = _loss_of_a_step(task, plan.recipe, copy_module(task.model), batch, teaching, single)
            if isinstance(again, float):
                raise InvalidOption(
                    f"A step of training fails in the precision {precision.precision}: {found}. Train in single "
                    f"precision, with {SINGLE!r} as the precision of a recipe in Python, or of your fabric."
                )
        raise InvalidOption(
            f"A step of training fails on the unpruned network: {found}. Give a loss for its outputs and targets "
            "(loss), and a recipe that suits them (its heads say how outputs are compared with a teacher's)."
        )
    if not math.isfinite(found):
        _reject_loss(found, batch)
    halved = shrink(task.model, graph, [(group.width + 1) // 2 for group in graph.free])
    found = _loss_of_a_step(task, plan.recipe, halved, batch, teaching, precision)
    if isinstance(found, str):
        raise InvalidOption(
            f"A step of training fails once channels are cut: {found}. If parts are used in training alone, freeze "
            "the layers that they read (frozen)."
        )


def _reject_loss(loss: float, batch: Any) -> NoReturn:
    """Reject a loss of the unpruned network that is not finite; the error names the inputs if they are the reason."""
    if not all(bool(tensor.isfinite().all()) for tensor in tensors_in(inputs_of(batch))):
        raise InvalidData(
            "The training data hold inputs that are NaN or infinite. Remove these examples, or correct them."
        )
    raise InvalidLoss(
        f"The loss of the unpruned network is {loss} on a batch of the training data. Check the loss function, the "
        "targets and the network's weights."
    )


def _loss_of_a_step(
    task: PruningTask, recipe: Recipe, network: nn.Module, batch: Any, teacher: nn.Module, precision: FabricPrecision
) -> float | str:
    """The loss in a step of training, or a description of what goes wrong, without a full stop.

    The step has the precision of training, in which code fails that takes single precision only.
    """
    targets = targets_of(batch)
    try:
        with global_seed(task.device, 0):
            network = precision.convert_module(network.to(task.device).train())
            with precision.forward_context():
                outputs = call(network, precision.convert_input(inputs_of(batch)))
            outputs = precision.convert_output(outputs)
            if task.loss is None:
                if not are_classes(outputs):
                    return f"cross-entropy needs probabilities of classes, but the outputs are {described(outputs)}"
                check_targets(targets, outputs.size(1))
                if recipe.mixing:
                    require_no_ignored(targets)
                    _, targets = mixed(inputs_of(batch), targets, outputs.size(1), recipe.mixing, recipe.mixture)
            objective = Objective(recipe, task.loss)
            objective.look_at(outputs, targets)
            answers = None
            if recipe.distillation:
                with torch.no_grad(), precision.forward_context():
                    answers = [call(teacher.to(task.device).eval(), inputs_of(batch))]
            loss = objective(outputs, targets, answers)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser = optimiser_for(network, recipe, task.device)
            optimiser.step()
            for step in (0, recipe.epochs - 1):
                recipe.lr_at(step, steps_per_epoch=1)
            return loss.item()
    except InvalidLoss as error:
        return described_failure(error.__cause__) if error.__cause__ else str(error).partition(". ")[0]
    except AACPError:
        raise
    except Exception as error:
        if is_device_failure(error):
            raise
        return first_line(error)


def _problem_of_teacher(task: PruningTask, teacher: nn.Module, batch: Any) -> str | None:
    """A description of why a teacher cannot teach the network, without a full stop; None if it can."""
    inputs = inputs_of(batch)
    try:
        with global_seed(task.device, 0), torch.no_grad():
            taught, outputs = (
                call(copy_module(network).to(task.device).eval(), inputs) for network in (teacher, task.model)
            )
    except Exception as error:
        if is_device_failure(error):
            raise
        return f"the teacher does not run on the training data ({first_line(error)})"
    if described(taught) != described(outputs):
        return f"the teacher's outputs are {described(taught)}, the network's {described(outputs)}"
    return None
