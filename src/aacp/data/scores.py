"""Scores: functions from a network and batches of data to a number, where larger is better."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from aacp.data.batches import Batches
from aacp.data.examples import call, inputs_of, targets_of
from aacp.errors import InvalidData

Score = Callable[[nn.Module, Batches], float]


def accuracy(model: nn.Module, batches: Batches) -> float:
    """The share of labels that equal the class with the largest output; of pixels, for segmentation."""
    correct = torch.zeros((), dtype=torch.int64, device=batches.device)
    outside = correct.clone()  # labels that are not a class of the network
    total = 0
    classes = 0
    with torch.no_grad():
        for batch in batches:
            outputs = call(model, inputs_of(batch))
            targets = _labels(batch)
            _check_outputs(outputs, targets)
            classes = outputs.shape[1]
            correct += (outputs.argmax(1) == targets).sum()
            outside += ((targets < 0) | (targets >= classes)).sum()
            total += targets.numel()
    if int(outside):
        raise InvalidData(
            f"{int(outside)} of {total} labels are outside 0..{classes - 1}, the classes of this network. "
            "Give labels of its classes, or your own score function."
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
