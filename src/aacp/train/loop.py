"""The training loop: epoch after epoch, a checkpoint after each, and the same call again goes on where it stopped."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import nn

from aacp.accelerate.norms import quick_norms
from aacp.accelerate.widening import examples, is_worthwhile, multiple_of, widened
from aacp.data.batches import Batches
from aacp.data.scores import Score, accuracy
from aacp.errors import InvalidOption
from aacp.modules import device_of_model
from aacp.runs.files import Epoch
from aacp.runs.folder import RunFolder
from aacp.train.checkpoint import RUN, WEIGHTS, Checkpoint, check_same_question, question
from aacp.train.devices import collective_errors, make_fabric
from aacp.train.mixing import check_mixing
from aacp.train.progress import Report, report
from aacp.train.recipe import BASE, FINETUNE, Recipe
from aacp.train.scoring import scoring_batches
from aacp.train.seeding import global_seed
from aacp.train.session import Session
from aacp.train.sources import as_carried_out, has_own_batches, parts_of, source_of
from aacp.train.teaching import Loss

Networks = nn.Module | Sequence[nn.Module]


@dataclass(frozen=True)
class Trained:
    """What training did, epoch by epoch; the network itself was changed in place."""

    epochs: tuple[Epoch, ...]

    @property
    def last(self) -> Epoch:
        return self.epochs[-1]


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
    capture: bool | None = None,
    widen: int | None = None,
    verbose: bool = False,
    tensorboard: bool = False,
) -> Trained:
    """Train a network in place: its weights after the last epoch, or their moving average if the recipe keeps one.

    `data` is Images, a data set, a loader, tensors (inputs, labels), or what `load_data` gives, whose hold-out is then
    scored after every epoch. With a folder, the same call takes up what an earlier one left there. `fabric` trains on
    several devices; `capture` forces or forbids CUDA graphs, which are used where they can be. `widen` is what widths
    are rounded up to while the network is trained: 8 where that is faster, 1 never. Ctrl-C loses the epoch in hand.
    """
    train, holdout = parts_of(data, holdout)
    check_teacher(recipe, teacher)
    check_mixing(recipe, loss)
    if fabric is not None and device is not None:
        raise InvalidOption(f"The fabric is on {fabric.device}, and {device} would be ignored. Leave the device out.")
    fabric = fabric or make_fabric(recipe.precision, device)
    source = source_of(train, recipe, fabric)
    recipe = as_carried_out(recipe, train)
    with ExitStack() as cleaning:
        cleaning.enter_context(collective_errors(fabric, folder))
        place = None if folder is None else RunFolder(folder)
        if place is not None and fabric.is_global_zero:
            cleaning.enter_context(place.lock())
        asked = {} if place is None else question(model, recipe, source.identity(), teacher)
        cleaning.enter_context(_at_home_afterwards(model))
        pays = is_worthwhile(recipe, source, fabric) and not (
            place and (place.path / WEIGHTS).exists()
        )  # then it is finished
        # A loss or a score of the user's might know the network, and find it unchanged while another is trained.
        multiple = multiple_of(widen, pays and loss is None and score is accuracy)
        shown = examples(source, fabric) if multiple > 1 else None
        stand_in = cleaning.enter_context(widened(model, shown, fabric, multiple, verbose))
        cleaning.enter_context(quick_norms(stand_in.trained, fabric))
        session = Session(stand_in.trained, source, recipe, fabric, teacher, loss, capture)
        batches = None if holdout is None else scoring_batches(holdout, fabric.device)
        log = cleaning.enter_context(report(recipe, has_own_batches(train), place, fabric, verbose, tensorboard))
        checkpoint = None if place is None else Checkpoint(place, *session.state, stand_in.growth)
        return Trained(tuple(_epochs(session, batches, score, checkpoint, asked, log)))


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
    verbose: bool = False,
) -> Trained:
    """Give a pruned network its accuracy back (F in the paper), taught by the unpruned one: `fit` from its weights.

    Without a teacher, the part of the recipe that needs one is left out.
    """
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
        verbose=verbose,
    )


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
    verbose: bool = False,
) -> Trained:
    """Train a structure from fresh weights (S in the paper), drawn from the recipe's seed."""
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
        verbose=verbose,
    )


def draw_weights(model: nn.Module, seed: int) -> None:
    """Draw every weight anew, as each module draws its own; a module that cannot keeps its weights, with a warning."""
    kept = []
    with global_seed(device_of_model(model), seed):
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            elif any(True for _ in module.parameters(recurse=False)):
                kept.append(f"{name or 'the network itself'} ({type(module).__name__})")
    if kept:
        warnings.warn(
            f"These modules have no reset_parameters() and keep the weights they have: {', '.join(kept)}. "
            "Build the network anew to start from fresh ones.",
            stacklevel=2,
        )


def check_teacher(recipe: Recipe, teacher: Any) -> None:
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


def _epochs(
    session: Session,
    batches: Batches | None,
    score: Score,
    checkpoint: Checkpoint | None,
    asked: dict[str, Any],
    log: Report,
) -> Iterator[Epoch]:
    done = 0 if checkpoint is None else _take_up(checkpoint, asked, session.fabric)
    yield from log.past(done)
    for number in range(done, session.recipe.epochs):
        epoch = session.run_epoch(number)
        if batches is not None and session.fabric.is_global_zero:
            epoch = replace(epoch, holdout=session.evaluate(batches, score))
        # The log first: a line too many is recognised by the state that does not have it.
        log(epoch)
        if checkpoint is not None and session.fabric.is_global_zero:
            checkpoint.write(number + 1)
        yield epoch
    if session.average is not None:
        session.average.swap()
    if checkpoint is not None and session.fabric.is_global_zero:
        checkpoint.write_weights()


def _take_up(checkpoint: Checkpoint, asked: dict[str, Any], fabric: Fabric) -> int:
    """The number of epochs that an earlier call finished here, whose state is then that of the session."""
    check_same_question(checkpoint.folder, asked)
    fabric.barrier()
    if fabric.is_global_zero:
        checkpoint.folder.write_json(RUN, asked)
    return checkpoint.read()


@contextmanager
def _at_home_afterwards(model: nn.Module) -> Iterator[None]:
    """The network on the device, in the layout and in the mode in which it came."""
    home, modes = device_of_model(model), {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        model.zero_grad(set_to_none=True)
        model.to(home).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        for module, mode in modes.items():
            module.training = mode
