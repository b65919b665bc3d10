"""Rehearsal: small batches go through the unpruned network, so that what cannot work is told before a search."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import torch
from torch import nn

from aacp.channels import ChannelGraph
from aacp.data.batches import call, inputs_of, targets_of
from aacp.data.scores import accuracy
from aacp.data.splits import Source
from aacp.errors import AACPError, InvalidData, InvalidOption, first_line
from aacp.graph.surgery import shrink
from aacp.modules import copy_module, device_of_model, evaluating
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask
from aacp.torch_internals import pytree
from aacp.train.loader_batches import check_targets
from aacp.train.recipe import Recipe
from aacp.train.seeding import global_seed
from aacp.train.teaching import Loss, Objective, one_number

EXAMPLES = 2  # of one, a loss for each example looks like one for all
STEP = 32  # examples in a step of training, at most


def rehearse(subject: PruningTask, plan: Plan) -> None:
    """Refuse networks that change their inputs or cannot be kept in a file, batches without the targets that score or
    training need, and a loss that cannot be minimised."""
    _require_storable(subject.model)
    _require_pure(subject.model, _read_batch(subject, subject.data.holdout, subject.score is accuracy))
    batch = _read_batch(subject, subject.data.train, plan.recipe is not None)
    if plan.recipe is not None and subject.loss is not None:
        _require_one_number(subject.loss, subject.model, batch)


def rehearse_judging(subject: PruningTask) -> str:
    """Score the unpruned network, as it will be in the end, so that data it cannot be judged by is refused now.

    Returned are the scores, in words.
    """
    _read_batch(subject, subject.data.test, subject.score is accuracy)
    found = []
    for part in (subject.data.holdout, subject.data.test):
        try:
            with global_seed(subject.device, 0):  # whatever is drawn later is the same as without it
                found.append(f"{subject.scored(subject.model, part):.4f} on {subject.name_of(part)}")
        except AACPError:
            raise
        except Exception as error:
            if not found:  # a network that cannot read its data: tracing explains that
                return "not scored"
            raise InvalidData(
                f"{subject.name_of(part).capitalize()}: the network does not run on them: {first_line(error)}. Give "
                "examples like the held-out ones, on which it does."
            ) from error
    return ", ".join(found)


def rehearse_training(subject: PruningTask, plan: Plan, graph: ChannelGraph) -> None:
    """Take a step with the network as it is, and with half of every width: what fails would fail after the search."""
    if plan.recipe is None:
        return
    size = min(STEP, plan.recipe.batch_size)
    batch = next(iter(subject.read(subject.data.train, size)))
    trouble = _trouble_in_a_step(subject, plan.recipe, copy_module(subject.model), batch)
    if trouble is not None:
        raise InvalidOption(
            f"A step of training fails on the network as it is: {trouble}. Give a loss for its outputs and targets "
            "(loss), and a recipe that suits them (distillation=0 where outputs are no classes)."
        )
    halved = shrink(subject.model, graph, [(group.width + 1) // 2 for group in graph.free])
    trouble = _trouble_in_a_step(subject, plan.recipe, halved, batch)
    if trouble is not None:
        raise InvalidOption(
            f"A step of training fails once channels are cut: {trouble}. If parts are used in training alone, leave "
            "what they read as it is (frozen)."
        )


def _trouble_in_a_step(subject: PruningTask, recipe: Recipe, network: nn.Module, batch: Any) -> str | None:
    targets = targets_of(batch)
    try:
        with global_seed(subject.device, 0):
            outputs = call(network.to(subject.device).train(), inputs_of(batch))
            if (recipe.distillation or subject.loss is None) and not _are_classes(outputs):
                means = "distillation compares" if recipe.distillation else "cross-entropy is of"
                return f"{means} probabilities of classes, but the outputs are {_in_words(outputs)}"
            if subject.loss is None:
                check_targets(targets, outputs.size(1))
            Objective(recipe, subject.loss).labelled(outputs, targets).backward()  # type: ignore[no-untyped-call]
    except AACPError:
        raise
    except Exception as error:
        return first_line(error)
    return None


def _are_classes(outputs: Any) -> bool:
    return isinstance(outputs, torch.Tensor) and outputs.dim() > 1 and outputs.size(1) > 1


def _read_batch(subject: PruningTask, part: Source, needs_targets: bool) -> Any:
    batch = next(iter(subject.read(part, EXAMPLES, device_of_model(subject.model))))
    if not _is_pair(batch) and (needs_targets or not _can_be_given(subject.model, batch)):
        raise InvalidData(
            f"A batch of the {subject.name_of(part)} is {_in_words(batch)}, but it must be (inputs, targets). Let "
            "the loader or data set give pairs, whose inputs may be a tuple, or a dictionary by argument name."
        )
    return batch


def _require_storable(model: nn.Module) -> None:
    for path, module in model.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            raise InvalidOption(
                f"{path or 'The network'} has state that is no tensor (get_extra_state), which would be missing from "
                "what is saved. Keep it in a buffer."
            )


def _require_pure(model: nn.Module, batch: Any) -> None:
    """Data are kept and read many times: a network must leave its inputs as they are."""
    inputs = inputs_of(batch)
    before = copy.deepcopy(inputs)
    try:
        with global_seed(device_of_model(model), 0), torch.no_grad(), evaluating(model):
            call(model, inputs)
    except Exception:  # what it cannot read, tracing explains
        return
    pairs = zip(pytree.tree_leaves(before), pytree.tree_leaves(inputs), strict=True)
    if any(isinstance(old, torch.Tensor) and not torch.equal(old, new) for old, new in pairs):
        raise InvalidOption(
            "The network writes into its inputs, so that the next pass would read other data. Let it make a new "
            "tensor: x = x - mean, not x -= mean."
        )


def _require_one_number(loss: Loss, model: nn.Module, batch: Any) -> None:
    try:
        with global_seed(device_of_model(model), 0), torch.no_grad(), evaluating(model):
            found = loss(call(model, inputs_of(batch)), targets_of(batch))
    except Exception:  # in training the network may answer otherwise; and what it cannot read, tracing explains
        return
    one_number(found)


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2


def _can_be_given(model: nn.Module, batch: Any) -> bool:
    """Whether a batch may be inputs alone: a dictionary is if the network has arguments of these names."""
    if not isinstance(batch, dict):
        return True
    try:
        inspect.signature(model.forward).bind(**batch)
    except TypeError:
        return False
    return True


def _in_words(batch: Any) -> str:
    if isinstance(batch, dict):
        return f"a dictionary of {', '.join(map(repr, batch))}"
    if isinstance(batch, (tuple, list)):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"a tensor of shape {tuple(batch.shape)}" if isinstance(batch, torch.Tensor) else type(batch).__name__
