"""Scores: functions from a network and batches of data to a number, where larger is better."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from aacp.data.batches import Batches
from aacp.data.examples import call, inputs_of, targets_of, tensors_in
from aacp.data.likeness import Likeness
from aacp.errors import AACPError, InvalidData, InvalidScore, is_device_failure
from aacp.pytorch.modules import copy_module, evaluating
from aacp.user.code import described_failure
from aacp.user.progress import Silence, report_progress
from aacp.user.values import finite_score

Score = Callable[[nn.Module, Batches], float]


class NetworkScore:
    """A score that judges a network without the batches: code of the user, such as a trainer's, reads its own data.

    Args:
        function: the user's function of a network. It gets a copy, since a trainer may fuse layers or change the type
            of the weights.
    """

    def __init__(self, function: Callable[[nn.Module], float]) -> None:
        self.function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)

    def __call__(self, network: nn.Module, batches: Batches) -> float:
        return self.function(copy_module(network).requires_grad_(False))  # a function may forget torch.no_grad


class WatchedBatches(Batches):
    """Batches that notice NaN and infinity in the inputs that are read from them, without reading anything twice.

    Args:
        batches: the batches to watch; bytes are not watched, since they cannot hold NaN.
        name: the name of the data, if the progress of reading it is to be reported every few seconds.
    """

    def __init__(self, batches: Batches, name: str = "") -> None:
        super().__init__(batches._batches, batches.device, batches._prepare)
        self.name = name
        self._broken = torch.zeros((), dtype=torch.bool, device=self.device)  # on the device: nothing waits for it

    def __iter__(self) -> Iterator[Any]:
        silence = Silence()
        for done, batch in enumerate(super().__iter__()):
            if self.name and silence.is_over():
                report_progress(f"scoring on the {self.name}, {done:,} batches done")
            for tensor in () if self.are_bytes else tensors_in(inputs_of(batch)):
                if tensor.is_floating_point():
                    self._broken |= ~tensor.isfinite().all()
            yield batch

    def require_finite(self) -> None:
        """Reject data if inputs that were read hold NaN or infinity: scores on them mean nothing."""
        if bool(self._broken):
            raise InvalidData(
                "the inputs hold NaN or infinity, so scores on them mean nothing. Remove or correct these inputs."
            )


def scored(score: Score, network: nn.Module, batches: Batches, where: str) -> float:
    """The score of a network, which is a finite number; every score of a network is computed here.

    Args:
        score: the score function, ours or the user's.
        network: the network to score.
        batches: the data; WatchedBatches with NaN or infinity are rejected.
        where: the name of the data, for messages.
    """
    try:
        value = score(network, batches)
        if isinstance(batches, WatchedBatches):
            batches.require_finite()
    except InvalidData as error:
        raise type(error)(f"{where.capitalize()}: {error}") from error
    except AACPError:
        raise
    except Exception as error:  # a user's function or network may raise anything
        if is_device_failure(error):
            raise
        if score is accuracy or isinstance(score, Likeness):
            raise InvalidData(
                f"{where.capitalize()}: the network does not run on them: {described_failure(error)}. Give inputs that "
                "it is made for."
            ) from error
        arguments = "(network)" if isinstance(score, NetworkScore) else "(network, batches)"
        raise InvalidScore(
            f"The score function failed on the {where}: {described_failure(error)}. It is called with {arguments} and "
            "must return one number."
        ) from error
    return finite_score(value, where)


def accuracy(model: nn.Module, batches: Batches) -> float:
    """The share of labels that equal the class with the largest output; of pixels, for segmentation.

    The network is scored in evaluation mode, and is left in the mode that it was in.
    """
    correct = torch.zeros((), dtype=torch.int64, device=batches.device)
    outside = correct.clone()  # labels that are not a class of the network
    total = 0
    classes = 0
    with torch.no_grad(), evaluating(model) if isinstance(model, nn.Module) else nullcontext():
        for batch in batches:
            outputs = call(model, inputs_of(batch))
            targets = _labels(batch)
            _check_outputs(outputs, targets)
            classes = outputs.shape[1]
            predicted = outputs.argmax(1)
            # argmax takes NaN for the largest output, but an output that is NaN predicts nothing.
            is_number = ~outputs.gather(1, predicted.unsqueeze(1)).squeeze(1).isnan()
            correct += ((predicted == targets) & is_number).sum()
            outside += ((targets < 0) | (targets >= classes)).sum()
            total += targets.numel()
    if int(outside):
        raise InvalidData(
            f"{int(outside)} of {total} labels are outside 0..{classes - 1}, the classes of this network. "
            "Give labels of its classes, or your own score function (--metric), which may leave labels out."
        )
    return int(correct) / total


def _labels(batch: object) -> torch.Tensor:
    targets = targets_of(batch)
    if not isinstance(targets, torch.Tensor) or targets.is_floating_point():
        raise InvalidData(
            f"Accuracy needs batches of (inputs, labels), but the labels are {_kind(targets)}. "
            "Give integer labels, or your own score function."
        )
    return targets


def _check_outputs(outputs: object, targets: torch.Tensor) -> None:
    fits = isinstance(outputs, torch.Tensor) and outputs.dim() > 1
    if not fits or outputs.shape[:1] + outputs.shape[2:] != targets.shape:  # type: ignore[attr-defined]
        raise InvalidData(
            f"Accuracy compares outputs (n, classes, ...) with labels (n, ...), but got {_kind(outputs)} and "
            f"{_kind(targets)}. Give your own score function."
        )


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} of shape {tuple(value.shape)}"
    return "missing" if value is None else type(value).__name__
