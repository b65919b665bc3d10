"""The loss of a training step, with or without a teacher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aacp.data.examples import call
from aacp.errors import InvalidLoss, InvalidOption
from aacp.pytorch.layout import contiguous, faster_layout, lay_out
from aacp.pytorch.modules import copy_module, submodules
from aacp.train.distillation import distance
from aacp.train.recipe import Recipe
from aacp.user.code import users_function

Loss = Callable[[Any, Any], Tensor]
CONVERTIBLE = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Linear)


class Teacher:
    """Copies, in evaluation mode, of the networks that a student imitates."""

    def __init__(
        self, networks: nn.Module | Sequence[nn.Module], device: torch.device, half: torch.dtype | None
    ) -> None:
        chosen = [networks] if isinstance(networks, nn.Module) else list(networks)
        if not chosen:
            raise InvalidOption("The ensemble of teachers is empty. Give at least one network, or teacher=None.")
        self.networks = [_prepared_copy(network, device, half) for network in chosen]

    def __call__(self, inputs: Any) -> list[Any]:
        """The outputs of each network for a batch."""
        with torch.no_grad():
            return [call(network, inputs) for network in self.networks]


class Objective:
    """The loss of a step: cross-entropy or the user's loss, combined with the distance from the teacher."""

    def __init__(self, recipe: Recipe, loss: Loss | None = None) -> None:
        self.share = recipe.distillation
        self.temperature = recipe.temperature
        self.heads = recipe.heads
        self.smoothing = recipe.label_smoothing
        self._loss = loss
        self._are_classes = True if loss is None else None  # None: the shape of the outputs decides

    def look_at(self, outputs: Any, targets: Any) -> None:
        """Learn from a first batch whether the outputs are classes; to ask in every step would wait for the device."""
        if self._loss is not None:
            self._are_classes = classes_by_targets(outputs, targets)

    def __call__(self, outputs: Any, targets: Any, answers: Sequence[Any] | None) -> Tensor:
        loss = self.labelled(outputs, targets)
        if answers is None:
            return loss
        return (1 - self.share) * loss + self.share * self.taught(outputs, answers)

    def labelled(self, outputs: Any, targets: Any) -> Tensor:
        """The user's loss, or cross-entropy."""
        if self._loss is not None:
            return _users_loss(self._loss, contiguous(outputs), targets)
        return F.cross_entropy(outputs, targets, label_smoothing=self.smoothing)

    def taught(self, outputs: Any, answers: Sequence[Any]) -> Tensor:
        """The distance from the answers of the teachers."""
        return distance(outputs, answers, self.heads, self.temperature, are_classes=self._are_classes)


def classes_by_targets(outputs: Any, targets: Any) -> bool | None:
    """Whether outputs are numbers for classes: they are if targets are labels or shares of classes.

    Targets of real numbers that are not shares are quantities. Other targets show nothing: the result is None.
    """
    if not isinstance(outputs, Tensor) or not isinstance(targets, Tensor) or outputs.dim() < 2:
        return None
    if not targets.is_floating_point():
        is_label = targets.shape == outputs.shape[:1] + outputs.shape[2:]
        return True if is_label else None
    return not are_quantities(outputs, targets) if targets.shape == outputs.shape else None


def are_classes(outputs: Any) -> bool:
    """Whether outputs can be numbers for two or more classes: a tensor (n, classes, ...)."""
    return isinstance(outputs, Tensor) and outputs.dim() > 1 and outputs.size(1) > 1


def are_quantities(outputs: Tensor, targets: Any) -> bool:
    """Whether targets are a number for each output, as in regression, and not shares of classes, which add up to 1."""
    if not isinstance(targets, Tensor) or not targets.is_floating_point() or targets.shape != outputs.shape:
        return False
    sums = targets.double().sum(1)
    return bool((targets < 0).any()) or not torch.allclose(sums, torch.ones_like(sums), atol=1e-3)


def _users_loss(loss: Loss, outputs: Any, targets: Any) -> Tensor:
    """The value of the user's loss function for a batch, which training can minimise."""
    with users_function("loss function", "(outputs, targets) of a batch", InvalidLoss):
        found = one_number(loss(outputs, targets))
    if torch.is_grad_enabled() and not found.requires_grad:
        raise InvalidLoss(
            "The loss function returned a number without a gradient, so nothing can be learned from it. Compute it "
            "from the outputs with operations of torch, without detach, item or no_grad."
        )
    return found


def one_number(loss: Any) -> Tensor:
    """The value of the user's loss function; reject it unless it is one number."""
    if not isinstance(loss, Tensor) or loss.dim():
        found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise InvalidLoss(
            f"The loss function returned {found} for a batch, not one number. Return the mean over the batch, as a "
            'tensor: reduction="mean" in losses of torch.'
        )
    return loss


def _prepared_copy(network: nn.Module, device: torch.device, half: torch.dtype | None) -> nn.Module:
    """A copy for evaluation, with its weights converted once; autocast would convert them in every step."""
    prepared = copy_module(network).eval().requires_grad_(False).to(device)
    if half is not None:
        for module in submodules(prepared):
            if isinstance(module, CONVERTIBLE):
                module.to(half)
    return lay_out(prepared, faster_layout(device))
