"""Checks of a small batch of each part of the data before the search."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from aacp.data.batches import Batches
from aacp.data.examples import call, has_targets, inputs_of, targets_of, tensors_in
from aacp.data.scores import accuracy
from aacp.data.splits import Source, require_examples
from aacp.errors import InvalidData, InvalidOption, failing_as
from aacp.estimate.inheritance import REPAIR
from aacp.pipeline.plan import Plan
from aacp.pipeline.task import PruningTask, can_be_given
from aacp.pytorch.internals import pytree
from aacp.pytorch.modules import copy_module, device_of_model
from aacp.train.seeding import global_seed
from aacp.train.teaching import Loss, one_number

EXAMPLES = 2  # more than one, because the loss of one example looks the same as the mean


def check_data(task: PruningTask, plan: Plan) -> None:
    """Reject networks, batches and losses that would fail later.

    These are networks that do not run on the data, change them or cannot be saved, batches without the targets that
    the score or the training needs, and losses that are not one number.
    """
    _require_storable(task.model)
    _require_pure(task.model, read_batch(task, task.data.holdout, task.score is accuracy), task.data.holdout)
    batch = read_batch(task, task.data.train, plan.recipe is not None)
    if plan.recipe is not None and task.loss is not None:
        _require_one_number(task.loss, task.model, batch)


def check_calibration(plan: Plan, images: Batches) -> None:
    """Reject calibration images of several shapes if the weights of the result are repaired, which needs one shape."""
    if plan.chosen_reconstruction != REPAIR:
        return
    shapes = set()
    for inputs in images.inputs():
        shapes.add(tuple(tensor.shape[1:] for tensor in tensors_in(inputs)))
        if len(shapes) > 1:
            raise InvalidData(
                "The calibration images have several shapes, but repair needs one. Give images of one shape, or keep "
                "the inherited weights (reconstruction=None, --reconstruction none)."
            )


def read_batch(task: PruningTask, part: Source, needs_targets: bool) -> Any:
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
            f"{use}, but the {task.name_of(part)} have none: a batch is {described(batch)}. Give batches of (inputs, "
            "labels); without labels, prune without training (--no-training, or recipe=None) and without a score."
        )
    are_inputs_alone = not needs_targets or task.data.train is task.data.test
    if isinstance(batch, dict) and not is_input and are_inputs_alone:
        key = _input_key(task.model, batch)
        raise InvalidData(
            f"A batch of the {task.name_of(part)} is {described(batch)}, but {_arguments(task.model, batch)}. Give "
            f"what the network takes, such as [batch[{key!r}] for batch in loader], or let the loader or data set give "
            "pairs (inputs, targets)."
        )
    if not _is_pair(batch) and needs_targets:
        raise InvalidData(
            f"A batch of the {task.name_of(part)} is {described(batch)}, but it must be (inputs, targets). Let "
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


def described(batch: Any) -> str:
    """What kind of value a batch or an output is, for messages."""
    if isinstance(batch, dict):
        return f"a dictionary of {', '.join(map(repr, batch))}"
    if isinstance(batch, (tuple, list)):
        return f"a {type(batch).__name__} of {len(batch)}"
    return f"a tensor of shape {tuple(batch.shape)}" if isinstance(batch, torch.Tensor) else type(batch).__name__
