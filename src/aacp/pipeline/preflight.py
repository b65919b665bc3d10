"""Preflight: checks before a search, such as a small batch through the unpruned network, and advice about it."""

from __future__ import annotations

import copy
import inspect
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.data.examples import call, has_targets, inputs_of, targets_of, tensors_in
from aacp.data.scores import accuracy
from aacp.data.splits import Source, require_examples, sampled
from aacp.errors import (
    AACPError,
    InvalidData,
    InvalidLoss,
    InvalidOption,
    failing_as,
    first_line,
    is_device_failure,
)
from aacp.graph.surgery import shrink
from aacp.latency.deployment import HERE
from aacp.latency.resources import require_separate_process
from aacp.pipeline.latency_stage import given_table
from aacp.pipeline.plan import Plan
from aacp.pipeline.request import read_request
from aacp.pipeline.task import PruningTask, can_be_given
from aacp.pytorch.internals import pytree
from aacp.pytorch.modules import copy_module, device_of_model
from aacp.runs.files import STRUCTURE
from aacp.runs.folder import RunFolder
from aacp.train.fabric import SINGLE, make_fabric, single_precision
from aacp.train.loader_batches import check_targets, require_no_ignored
from aacp.train.loop import check_teacher
from aacp.train.mixing import check_mixing, mixed
from aacp.train.optimisers import trained_parameters
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.train.session import has_batch_norm
from aacp.train.sources import check_batches, has_own_batches
from aacp.train.teaching import Loss, Objective, are_classes, one_number
from aacp.user.code import described_failure
from aacp.user.values import paths, score_text, whole_number

if TYPE_CHECKING:
    from lightning_fabric import Fabric
    from lightning_fabric.plugins.precision import Precision as FabricPrecision

EXAMPLES = 2  # more than one, because the loss of one example looks the same as the mean
MEMORISED = 0.99  # an accuracy from which a network may have been trained on the data that it is scored on
SAMPLE = 2000  # the number of training examples that the hold-out is compared with
LABELS = 500  # the number of held-out labels in which the most frequent one is found
MAX_STEP_EXAMPLES = 32  # the most examples in the step of training that is tried


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


def check_data(task: PruningTask, plan: Plan) -> None:
    """Reject networks, batches and losses that would fail later.

    These are networks that do not run on the data, change them or cannot be saved, batches without the targets that
    the score or the training needs, and losses that are not one number.
    """
    _require_storable(task.model)
    _require_pure(task.model, _read_batch(task, task.data.holdout, task.score is accuracy), task.data.holdout)
    batch = _read_batch(task, task.data.train, plan.recipe is not None)
    if plan.recipe is not None and task.loss is not None:
        _require_one_number(task.loss, task.model, batch)


def check_scoring(task: PruningTask) -> str:
    """Score the unpruned network, so that data on which it cannot be scored are rejected before the search.

    Returns the scores as text, for progress messages.
    """
    _read_batch(task, task.data.test, task.score is accuracy)
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
    problem = None if task.teacher is None else _problem_of_teacher(task, task.teacher, batch)
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
                    return f"cross-entropy needs probabilities of classes, but the outputs are {_described(outputs)}"
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
    if _described(taught) != _described(outputs):
        return f"the teacher's outputs are {_described(taught)}, the network's {_described(outputs)}"
    return None


def _read_batch(task: PruningTask, part: Source, needs_targets: bool) -> Any:
    """A small batch of a part of the data; reject a part without examples, and a batch of the wrong form."""
    require_examples(part, task.name_of(part))
    batch = next(iter(task.read(part, EXAMPLES, device_of_model(task.model))))
    _require_form(task, part, batch, needs_targets)
    return batch


def _require_form(task: PruningTask, part: Source, batch: Any, needs_targets: bool) -> None:
    """Reject a batch without the targets that are needed, or whose inputs the network does not take."""
    is_input = can_be_given(task.model, batch)
    if needs_targets and not has_targets(batch) and is_input:
        use = "Accuracy compares outputs with labels" if part is not task.data.train else "Training needs labels"
        raise InvalidData(
            f"{use}, but the {task.name_of(part)} have none: a batch is {_described(batch)}. Give batches of (inputs, "
            "labels); without labels, prune without training (--no-training, or recipe=None) and without a score."
        )
    are_inputs_alone = not needs_targets or task.data.train is task.data.test
    if isinstance(batch, dict) and not is_input and are_inputs_alone:
        key = _input_key(task.model, batch)
        raise InvalidData(
            f"A batch of the {task.name_of(part)} is {_described(batch)}, but {_arguments(task.model, batch)}. Give "
            f"what the network takes, such as [batch[{key!r}] for batch in loader], or let the loader or data set give "
            "pairs (inputs, targets)."
        )
    if not _is_pair(batch) and needs_targets:
        raise InvalidData(
            f"A batch of the {task.name_of(part)} is {_described(batch)}, but it must be (inputs, targets). Let "
            "the loader (by its collate_fn) or the data set give pairs, whose inputs may be a tuple, or a dictionary "
            "by argument name."
        )


def _arguments(model: nn.Module, batch: Mapping[str, Any]) -> str:
    """The arguments of a network, and the keys of a batch that are not among them, for messages."""
    arguments = inspect.signature(model.forward).parameters
    unknown = ", ".join(repr(key) for key in batch if key not in arguments)
    has = f"forward of {type(model).__name__} has"
    known = ", ".join(map(repr, arguments))
    return f"{has} no argument {unknown}, only {known}" if unknown else f"{has} the arguments {known}"


def _input_key(model: nn.Module, batch: Mapping[str, Any]) -> str:
    """The key of a batch that is probably the input: the name of an argument, else the largest tensor of numbers."""
    arguments = inspect.signature(model.forward).parameters
    named = [key for key in batch if key in arguments]
    sizes = {key: value.numel() for key, value in batch.items() if torch.is_tensor(value) and value.is_floating_point()}
    return next(iter([*named, *sorted(sizes, key=lambda key: -sizes[key]), *batch]))


def _require_storable(model: nn.Module) -> None:
    """Reject a network with state that a safetensors file cannot hold."""
    for path, module in model.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise InvalidOption(
                f"{path or 'The network'} has state that is not a tensor (get_extra_state), which would be missing "
                "from the saved file. Keep it in a buffer."
            )


def _require_pure(model: nn.Module, batch: Any, source: Source) -> None:
    """Reject a network that does not run on the data, or that changes its inputs, which are kept and read again."""
    inputs = inputs_of(batch)
    before = copy.deepcopy(inputs)
    shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors_in(inputs))
    what = f"{type(model).__name__} does not run on the held-out data, a batch of shape {shapes}"
    with (
        failing_as(InvalidData, what, _remedy(model, batch, source)),
        global_seed(device_of_model(model), 0),
        torch.no_grad(),
    ):
        call(copy_module(model).eval(), inputs)
    pairs = zip(pytree.tree_leaves(before), pytree.tree_leaves(inputs), strict=True)
    if any(isinstance(old, torch.Tensor) and not _is_same(old, new) for old, new in pairs):
        raise InvalidOption(
            "The network writes into its inputs, so the next pass would read other data. Let it make a new "
            "tensor: x = x - mean, not x -= mean."
        )


def _remedy(model: nn.Module, batch: Any, source: Source) -> str:
    """What to do about data that a network does not run on; they may be meant in another way than they are read."""
    if isinstance(source, list):
        return "Give data that the network takes; examples go into a DataLoader, since a list is read as batches."
    arguments = inspect.signature(model.forward).parameters.values()
    required = [each for each in arguments if each.kind is each.POSITIONAL_OR_KEYWORD and each.default is each.empty]
    if _is_pair(batch) and isinstance(inputs_of(batch), torch.Tensor) and len(required) == 2:
        return (
            "Give data that the network takes; two inputs without labels go into a dictionary by argument name, since "
            "a pair is read as inputs and labels."
        )
    return "Give data that the network takes, or the network of these data."


def _is_same(old: torch.Tensor, new: torch.Tensor) -> bool:
    """Whether two tensors have the same values; NaN is the same as NaN."""
    return old.shape == new.shape and bool(torch.isclose(old, new, rtol=0, atol=0, equal_nan=True).all())


def _require_one_number(loss: Loss, model: nn.Module, batch: Any) -> None:
    """Reject a loss function that does not return one number."""
    try:
        with global_seed(device_of_model(model), 0), torch.no_grad():
            found = loss(call(copy_module(model).eval(), inputs_of(batch)), targets_of(batch))
    except Exception:  # it may work in training mode, where outputs may differ; `check_training_step` tries that
        return
    one_number(found)


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def _described(batch: Any) -> str:
    if isinstance(batch, dict):
        return f"a dictionary of {', '.join(map(repr, batch))}"
    if isinstance(batch, (tuple, list)):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"a tensor of shape {tuple(batch.shape)}" if isinstance(batch, torch.Tensor) else type(batch).__name__
