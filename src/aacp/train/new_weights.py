"""New weights for training from scratch: He-normal, whatever the network's own constructor draws."""

from __future__ import annotations

import warnings

from torch import nn

from aacp.pytorch.internals import Convolution
from aacp.pytorch.modules import device_of_model
from aacp.train.seeding import global_seed


def draw_weights(model: nn.Module, seed: int) -> None:
    """Draw new values for every weight of a network, in place.

    Convolutions and linear layers get normal weights with the variance 2 / fan-in (He et al. 2015), as in the
    repositories that the paper builds on, and biases of zero. Other modules get what their `reset_parameters` draws; a
    warning names those that have weights but no such method.
    """
    kept = []
    with global_seed(device_of_model(model), seed):
        for name, module in model.named_modules():
            reset = getattr(module, "reset_parameters", None)
            if isinstance(module, (Convolution, nn.Linear)):
                _draw_he(module)
            elif callable(reset):
                reset()
            elif any(True for _ in module.parameters(recurse=False)):
                kept.append(f"{name or 'the network itself'} ({type(module).__name__})")
    if kept:
        warnings.warn(
            f"These modules have no reset_parameters() and keep their weights: {', '.join(kept)}. "
            "Build a new network to start from random weights.",
            stacklevel=2,
        )


def _draw_he(layer: nn.Module) -> None:
    assert isinstance(layer.weight, nn.Parameter)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    if isinstance(layer.bias, nn.Parameter):
        nn.init.zeros_(layer.bias)
