"""Mixing: combine every example with the one before it in the batch, and its label in the same proportion.

"blends" are weighted sums (mixup, Zhang et al.); "patches" replace a rectangle of an image (CutMix, Yun et al.). On the
training images a pruned network soon gives the outputs of its teacher; mixtures of them give it more to learn.
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
    """Reject mixing with the user's loss, because mixed labels are probabilities, which it may not accept."""
    if recipe.mixing and loss is not None:
        raise InvalidOption(
            f"The recipe mixes examples (mixing={recipe.mixing}) and their labels, but your loss function may not "
            f"accept mixed labels. {UNMIXED}"
        )


def mixed(
    inputs: Any, targets: Any, classes: int, concentration: float, mixture: Mixture = "blends"
) -> tuple[Tensor, Tensor]:
    """A mixed batch, and its labels as probabilities.

    Args:
        inputs: one tensor of examples.
        targets: one label for each example.
        classes: the number of classes.
        concentration: the share of each example is drawn from Beta(concentration, concentration).
        mixture: how two examples are combined.
    """
    if not (isinstance(inputs, Tensor) and isinstance(targets, Tensor) and _are_labels(targets)):
        raise InvalidData(
            f"The recipe mixes examples, which needs one tensor of inputs and one label for each input. {UNMIXED}"
        )
    if not inputs.is_floating_point():
        raise InvalidData(
            f"The recipe mixes examples, but the inputs are whole numbers ({inputs.dtype}), not quantities. {UNMIXED}"
        )
    if mixture == "patches" and inputs.dim() < 3:
        raise InvalidData(
            f"The recipe puts patches of one image into another, but inputs with {inputs.dim()} dimensions are not "
            "images. Use dataclasses.replace(recipe, mixture='blends'), or mixing=0 for no mixing."
        )
    both = torch.full((len(targets),), concentration, device=inputs.device)
    # Validating the arguments would wait for the device.
    share = torch.distributions.Beta(both, both, validate_args=False).sample().to(inputs.dtype)
    weight = _uniform_weight(inputs, share) if mixture == "blends" else _weight_outside_patches(inputs, share)
    labels = F.one_hot(targets.long(), classes).to(inputs.dtype)  # labels may be bytes
    kept = weight.flatten(1).mean(1, keepdim=True)
    return torch.lerp(_previous(inputs), inputs, weight), torch.lerp(_previous(labels), labels, kept)


def _uniform_weight(inputs: Tensor, share: Tensor) -> Tensor:
    """One weight for all values of an example."""
    return share.reshape(-1, *[1] * (inputs.dim() - 1))


def _weight_outside_patches(inputs: Tensor, share: Tensor) -> Tensor:
    """0 in a rectangle with 1 - share of the image's area, which may extend beyond the edge; 1 elsewhere."""
    height, width = inputs.shape[-2:]
    part = (1 - share).sqrt()
    inside = _interval(height, part)[:, :, None] & _interval(width, part)[:, None, :]
    return (~inside).to(inputs.dtype).reshape(-1, *[1] * (inputs.dim() - 3), height, width)


def _interval(length: int, part: Tensor) -> Tensor:
    """For every example an interval of pixels around a uniformly drawn centre, as a mask."""
    centre = torch.rand_like(part) * length
    pixels = torch.arange(length, device=part.device) + 0.5
    return (pixels - centre[:, None]).abs() < part[:, None] * length / 2


def _previous(batch: Tensor) -> Tensor:
    """For every example the one before it, in the same memory layout."""
    return torch.cat([batch[-1:], batch[:-1]])


def _are_labels(targets: Tensor) -> bool:
    return targets.dim() == 1 and not targets.is_floating_point()
