"""Rehearsal: small batches go through the unpruned network, so that what cannot work is told before a search."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from aacp.data.batches import call, inputs_of, targets_of
from aacp.data.modes import evaluating
from aacp.data.scores import accuracy
from aacp.data.splits import Source
from aacp.errors import AACPError, InvalidData
from aacp.pipeline.plan import Plan
from aacp.pipeline.subject import Subject
from aacp.train.seeding import global_seed
from aacp.train.teaching import Loss, one_number

EXAMPLES = 2  # of one, a loss for each example looks like one for all


def rehearse(subject: Subject, plan: Plan) -> None:
    """Refuse batches without the targets that score or training need, and a loss that cannot be minimised."""
    _read_batch(subject, subject.data.holdout, subject.score is accuracy)
    batch = _read_batch(subject, subject.data.train, plan.recipe is not None)
    if plan.recipe is not None and subject.loss is not None:
        _require_one_number(subject.loss, subject.model, batch)


def rehearse_judging(subject: Subject) -> str:
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
        except Exception:  # a network that cannot read its data: tracing explains that
            return "not scored"
    return ", ".join(found)


def _read_batch(subject: Subject, part: Source, needs_targets: bool) -> Any:
    batch = next(iter(subject.read(part, EXAMPLES, _home(subject.model))))
    if not _is_pair(batch) and (needs_targets or not _can_be_given(subject.model, batch)):
        raise InvalidData(
            f"A batch of the {subject.name_of(part)} is {_in_words(batch)}, but it must be (inputs, targets). Let "
            "the loader or data set give pairs, whose inputs may be a tuple, or a dictionary by argument name."
        )
    return batch


def _require_one_number(loss: Loss, model: nn.Module, batch: Any) -> None:
    try:
        with global_seed(_home(model), 0), torch.no_grad(), evaluating(model):
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
    return f"one {type(batch).__name__}"


def _home(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
