"""Mixing: every example combined with the one before it in the batch, and its label in the same share.

As blends (Zhang et al., mixup), or with a rectangle of the other picture in it (Yun et al., CutMix). A pruned network
soon answers on the training pictures as its teacher does; on mixtures of them there is more to learn.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from aacp.errors import InvalidData, InvalidOption
from aacp.train.recipe import Mixture, Recipe
from aacp.train.teaching import Loss

UNMIXED = "Use dataclasses.replace(recipe, mixing=0), or --recipe finetune on the command line."


def check_mixing(recipe: Recipe, loss: Loss | None) -> None:
    """Mixed labels are probabilities, which cross-entropy understands."""
    if recipe.mixing and loss is not None:
        raise InvalidOption(
            f"The recipe mixes examples ({recipe.mixing}) and with them their labels, which a loss of your own may "
            f"not understand. {UNMIXED}"
        )


def mixed(
    inputs: Any, targets: Any, classes: int, concentration: float, mixture: Mixture = "blends"
) -> tuple[Tensor, Tensor]:
    """A batch and its labels, which become probabilities; shares are drawn from Beta(concentration, concentration)."""
    if not (isinstance(inputs, Tensor) and isinstance(targets, Tensor) and _are_labels(targets)):
        raise InvalidData(
            f"The recipe mixes examples, which needs inputs that are one tensor and one label for each. {UNMIXED}"
        )
    if mixture == "patches" and inputs.dim() < 3:
        raise InvalidData(
            f"The recipe puts patches of one picture into another, but inputs of {inputs.dim()} dimensions are no "
            "pictures. Use dataclasses.replace(recipe, mixture='blends'), with mixing=0 for none at all."
        )
    towards = torch.full((len(targets),), concentration, device=inputs.device)
    # Checking its arguments would wait for the device.
    share = torch.distributions.Beta(towards, towards, validate_args=False).sample().to(inputs.dtype)
    weight = _alike(inputs, share) if mixture == "blends" else _outside_of_patches(inputs, share)
    known = F.one_hot(targets, classes).to(inputs.dtype)
    kept = weight.flatten(1).mean(1, keepdim=True)
    return torch.lerp(_previous(inputs), inputs, weight), torch.lerp(_previous(known), known, kept)


def _alike(inputs: Tensor, share: Tensor) -> Tensor:
    """One weight for the whole of each example."""
    return share.reshape(-1, *[1] * (inputs.dim() - 1))


def _outside_of_patches(inputs: Tensor, share: Tensor) -> Tensor:
    """1 where an example stays itself, 0 in a rectangle of 1 - share of it, which may lie half outside."""
    height, width = inputs.shape[-2:]
    part = (1 - share).sqrt()
    inside = _stretch(height, part)[:, :, None] & _stretch(width, part)[:, None, :]
    return (~inside).to(inputs.dtype).reshape(-1, *[1] * (inputs.dim() - 3), height, width)


def _stretch(length: int, part: Tensor) -> Tensor:
    """For every example a part of a line of pixels, around a place that is drawn evenly."""
    centre = torch.rand_like(part) * length
    pixels = torch.arange(length, device=part.device) + 0.5
    return (pixels - centre[:, None]).abs() < part[:, None] * length / 2


def _previous(batch: Tensor) -> Tensor:
    """For every example the one before it, in the same memory layout."""
    return torch.cat([batch[-1:], batch[:-1]])


def _are_labels(targets: Tensor) -> bool:
    return targets.dim() == 1 and not targets.is_floating_point()
