"""The training loop: one epoch after another, a checkpoint after each. The same call resumes an interrupted run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from aacp.acceleration import accelerated
from aacp.data.batches import Batches
from aacp.data.scores import Score, WatchedBatches, accuracy
from aacp.errors import InvalidOption
from aacp.pytorch.layout import PLAIN, lay_out
from aacp.pytorch.modules import device_of_model, require_network, submodules, with_gradients
from aacp.runs.files import RUN, WEIGHTS
from aacp.runs.folder import RunFolder
from aacp.runs.mending import mend
from aacp.runs.scores import Epoch
from aacp.train.checkpoint import (
    Checkpoint,
    check_same_request,
    keep_starting_weights,
    training_request,
    weights_after,
)
from aacp.train.fabric import chosen_fabric, collective_errors, loss_scaler
from aacp.train.mixing import check_mixing
from aacp.train.new_weights import draw_weights
from aacp.train.recipe import BASE, FINETUNE, Recipe
from aacp.train.reporting import Report, report
from aacp.train.session import Session
from aacp.train.sources import as_carried_out, batches_of, has_own_batches, parts_of
from aacp.train.teaching import Loss
from aacp.train.threads import THREADS, recorded_threads, using_threads
from aacp.train.trained_as import TrainedAs, TrainedDirectly
from aacp.user.code import without_exit
from aacp.user.options import known_options
from aacp.user.values import counted, function, instance, whole_number

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Networks = nn.Module | Sequence[nn.Module]


@dataclass(frozen=True)
class Trained:
    """The epochs of a training run. The network itself was changed in place."""

    epochs: tuple[Epoch, ...]

    @property
    def last(self) -> Epoch:
        return self.epochs[-1]


@known_options
@without_exit
@with_gradients
def fit(
    model: nn.Module,
    data: Any,
    recipe: Recipe = BASE,
    *,
    holdout: Any = None,
    teacher: Networks | None = None,
    loss: Loss | None = None,
    score: Score = accuracy,
    folder: str | os.PathLike[str] | None = None,
    fabric: Fabric | None = None,
    device: torch.device | str | None = None,
    accelerate: bool = True,
    tensorboard: bool = False,
    until: int | None = None,
) -> Trained:
    """Train a network in place. Ctrl-C loses only the current epoch if there is a folder.

    Args:
        model: the network. It gets the weights of the last epoch, or their moving average if the recipe keeps one.
        data: Images, a data set, a loader, tensors (inputs, labels), or the result of `load_data`.
        recipe: the settings.
        holdout: data to score after every epoch; by default the hold-out of `data`, if it has one.
        teacher: a network to imitate, or several; the recipe's `distillation` is its share of the loss.
        loss: a function (outputs, targets) -> scalar tensor; None for cross-entropy.
        score: a function (network, batches) -> number for the hold-out.
        folder: where the state is saved after every epoch. The same call with the same folder resumes the run.
        fabric: a launched Lightning Fabric, to train on several devices.
        device: where to train; by default the GPU if there is one.
        accelerate: False trains with plain torch operations, more slowly; the results agree up to rounding.
        tensorboard: write TensorBoard files to the folder.
        until: stop after this epoch, with the learning rates of the whole recipe. The folder then has the weights in
            `weights-UNTIL.safetensors`, and the same call with a later `until`, or without one, continues.
    """
    return _fit(
        model, data, recipe, holdout, teacher, loss, score, folder, fabric, device, accelerate, tensorboard, until
    )


@without_exit
@with_gradients
def fit_made_again(
    model: nn.Module,
    data: Any,
    recipe: Recipe,
    *,
    holdout: Any = None,
    teacher: Networks | None = None,
    loss: Loss | None = None,
    score: Score = accuracy,
    folder: str | os.PathLike[str] | None = None,
    fabric: Fabric | None = None,
    device: torch.device | str | None = None,
) -> Trained:
    """As `fit`, for a network that every call makes again in the same way, such as a repaired one.

    Its weights may differ between calls, because a repair depends on the machine and on random augmentation. The folder
    is therefore recognised by the rest of the request; what it was made from is in the request of the whole run.
    """
    return _fit(model, data, recipe, holdout, teacher, loss, score, folder, fabric, device, is_made_again=True)


def _fit(
    model: nn.Module,
    data: Any,
    recipe: Recipe,
    holdout: Any,
    teacher: Networks | None,
    loss: Loss | None,
    score: Score,
    folder: str | os.PathLike[str] | None,
    fabric: Fabric | None,
    device: torch.device | str | None,
    accelerate: bool = True,
    tensorboard: bool = False,
    until: int | None = None,
    is_made_again: bool = False,
) -> Trained:
    """`fit`, or `fit_made_again`."""
    require_network(model)
    _require_recipe(recipe)
    function("score", score, "(network, batches)")
    if loss is not None:
        function("loss", loss, "(outputs, targets)")
    if until is not None:
        until = whole_number("until", until, 1)
    train, holdout = parts_of(data, holdout)
    check_teacher(recipe, teacher)
    check_mixing(recipe, loss)
    fabric = chosen_fabric(fabric, recipe.precision, device)
    source = batches_of(train, recipe, fabric)
    recipe = as_carried_out(recipe, train, model)
    with ExitStack() as stack:
        stack.enter_context(collective_errors(fabric, folder, model))
        place = None if folder is None else RunFolder(folder)
        if place is not None and fabric.is_global_zero:
            stack.enter_context(place.lock())
            mend(place)
        fabric.barrier()  # no process may read a file before it is mended
        is_finished = place is not None and (place.path / WEIGHTS).exists()
        if place is not None and not is_finished:
            stack.enter_context(using_threads(recorded_threads(place), fabric.device, place.path))
        request = {} if place is None else training_request(model, recipe, source.identity(), teacher, loss)
        if place is not None and is_made_again:
            keep_starting_weights(place, request)
        stack.enter_context(_restored_afterwards(model))
        steps = 0 if is_finished else recipe.epochs * source.steps
        # The user's loss or score may hold a reference to the network, so no other network may be trained for it.
        # Other optimisers than SGD may learn differently in another network, such as a wider one.
        is_replaceable = loss is None and score is accuracy and recipe.optimiser == "sgd"
        faster: AbstractContextManager[TrainedAs] | None = (
            accelerated("network_for", model, source, fabric, steps, is_replaceable) if accelerate else None
        )
        trained_as = stack.enter_context(faster or nullcontext(TrainedDirectly(model)))
        session = Session(trained_as.network, source, recipe, fabric, teacher, loss, accelerate)
        batches = None if holdout is None else WatchedBatches(Batches.of(holdout, device=fabric.device))
        log = stack.enter_context(report(recipe, has_own_batches(train), place, fabric, tensorboard))
        kept = (session.optimiser, session.average, loss_scaler(fabric))
        checkpoint = None if place is None else Checkpoint(place, trained_as, *kept)
        last = recipe.epochs if until is None else min(until, recipe.epochs)
        return Trained(tuple(_run_epochs(session, batches, score, checkpoint, request, log, last)))


@known_options
def finetune(
    model: nn.Module,
    data: Any,
    recipe: Recipe = FINETUNE,
    *,
    teacher: Networks | None = None,
    holdout: Any = None,
    loss: Loss | None = None,
    score: Score = accuracy,
    folder: str | os.PathLike[str] | None = None,
    fabric: Fabric | None = None,
    device: torch.device | str | None = None,
) -> Trained:
    """Recover the accuracy of a pruned network (F in the paper): `fit`, starting from the inherited weights.

    Args:
        model: the pruned network, which is trained in place.
        data: what to train on, as in `fit`.
        recipe: the settings. Without a teacher, their `distillation` is ignored.
        teacher: a network to imitate, usually the unpruned one.
        holdout, loss, score, folder, fabric, device: as in `fit`.
    """
    _require_recipe(recipe)
    if teacher is None:
        recipe = replace(recipe, distillation=0.0)
    return fit(
        model,
        data,
        recipe,
        teacher=teacher,
        holdout=holdout,
        loss=loss,
        score=score,
        folder=folder,
        fabric=fabric,
        device=device,
    )


@known_options
def train_from_scratch(
    model: nn.Module,
    data: Any,
    recipe: Recipe = BASE,
    *,
    teacher: Networks | None = None,
    holdout: Any = None,
    loss: Loss | None = None,
    score: Score = accuracy,
    folder: str | os.PathLike[str] | None = None,
    fabric: Fabric | None = None,
    device: torch.device | str | None = None,
) -> Trained:
    """Train a structure from new He-normal weights (S in the paper), drawn from the recipe's seed.

    Args:
        model: the network, which gets new weights and is trained in place.
        data: what to train on, as in `fit`.
        recipe: the settings.
        teacher, holdout, loss, score, folder, fabric, device: as in `fit`.
    """
    require_network(model)
    _require_recipe(recipe)
    draw_weights(model, recipe.seed)
    return fit(
        model,
        data,
        recipe,
        teacher=teacher,
        holdout=holdout,
        loss=loss,
        score=score,
        folder=folder,
        fabric=fabric,
        device=device,
    )


def _require_recipe(recipe: object) -> None:
    instance("recipe", recipe, Recipe, "Give aacp.Recipe(epochs=..., batch_size=..., lr=...).")


def check_teacher(recipe: Recipe, teacher: Any) -> None:
    """Reject a teacher that the recipe does not use, and a recipe that needs a teacher if there is none."""
    if teacher is not None and not recipe.distillation:
        raise InvalidOption(
            "There is a teacher, but the recipe gives it no share of the loss. "
            "Use dataclasses.replace(recipe, distillation=0.9), or leave the teacher out."
        )
    if teacher is None and recipe.distillation:
        raise InvalidOption(
            f"The recipe takes {recipe.distillation} of the loss from a teacher, but there is none. "
            "Give teacher=, such as the unpruned network, or a recipe with distillation=0."
        )


def _run_epochs(
    session: Session,
    batches: Batches | None,
    score: Score,
    checkpoint: Checkpoint | None,
    request: dict[str, Any],
    log: Report,
    last: int,
) -> Iterator[Epoch]:
    """The epochs of a run up to `last`: first those that an earlier call finished, then new ones."""
    is_first = session.fabric.is_global_zero
    done = 0 if checkpoint is None else _resume(checkpoint, request, session.fabric)
    if checkpoint is not None and done > last:
        raise InvalidOption(
            f"{checkpoint.folder.path} was already trained for {counted(done, 'epoch')}, so it cannot stop after "
            f"{last}. Use its {weights_after(last, session.recipe)} if it is there, or train in another folder."
        )
    yield from log.finished_epochs(done)
    for number in range(done, last):
        epoch = session.run_epoch(number)
        if batches is not None and is_first:
            epoch = replace(epoch, holdout=session.evaluate(batches, score))
        # The log before the state: if the process dies in between, the state shows that the log has one line too many.
        log(epoch)
        if checkpoint is not None and is_first:
            checkpoint.write(number + 1)
        yield epoch
    if session.average is not None:
        session.average.swap()
    if checkpoint is not None and is_first:
        checkpoint.write_weights(weights_after(last, session.recipe))


def _resume(checkpoint: Checkpoint, request: dict[str, Any], fabric: Fabric) -> int:
    """Restore the state that an earlier call left in the folder; returns its number of epochs."""
    check_same_request(checkpoint.folder, request)
    fabric.barrier()  # every process must read the old request before the first one replaces it
    if fabric.is_global_zero:
        checkpoint.folder.write_json(RUN, {**request, THREADS: torch.get_num_threads()})
    return checkpoint.restore()


@contextmanager
def _restored_afterwards(model: nn.Module) -> Iterator[None]:
    """Return the network to its device, to contiguous weights, and its modules to their modes."""
    device = device_of_model(model)
    modes = {module: module.training for module in submodules(model)}
    try:
        yield
    finally:
        model.zero_grad(set_to_none=True)
        lay_out(model.to(device), PLAIN)
        for module, mode in modes.items():
            module.training = mode
