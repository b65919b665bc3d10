"""Mixing: every example blended with the one before it in the batch, and its label likewise (Zhang et al., mixup).

A pruned network soon answers on the training pictures as its teacher does; between them there is more to learn.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from aacp.errors import InvalidData


def mixed(inputs: Any, targets: Any, classes: int, concentration: float) -> tuple[Tensor, Tensor]:
    """A batch and its labels, which become probabilities; shares are drawn from Beta(concentration, concentration)."""
    if not (isinstance(inputs, Tensor) and isinstance(targets, Tensor) and _are_labels(targets)):
        raise InvalidData(
            "The recipe mixes examples, which needs inputs that are one tensor and one label for each. "
            "Use dataclasses.replace(recipe, mixing=0)."
        )
    towards = torch.full((len(targets),), concentration, device=inputs.device)
    share = torch.distributions.Beta(towards, towards).sample().to(inputs.dtype)
    blended = torch.lerp(_previous(inputs), inputs, share.reshape(-1, *[1] * (inputs.dim() - 1)))
    known = F.one_hot(targets, classes).to(inputs.dtype)
    return blended, torch.lerp(_previous(known), known, share[:, None])


def _previous(batch: Tensor) -> Tensor:
    """For every example the one before it, in the same memory layout."""
    return torch.cat([batch[-1:], batch[:-1]])


def _are_labels(targets: Tensor) -> bool:
    return targets.dim() == 1 and not targets.is_floating_point()
