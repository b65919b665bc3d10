"""New weights for training from scratch: He-normal, whatever the network's own constructor draws."""

from __future__ import annotations

import warnings

import torch
from torch import nn
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from aacp.errors import InvalidOption
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
                _draw_he(module, name)
            elif callable(reset):
                reset()
            elif isinstance(module, ParametrizationList):
                continue  # the layer whose weight it computes has drawn it
            elif any(True for _ in module.parameters(recurse=False)):
                kept.append(f"{name or 'the network itself'} ({type(module).__name__})")
    if kept:
        warnings.warn(
            f"These modules have no reset_parameters() and keep their weights: {', '.join(kept)}. "
            "Build a new network to start from random weights.",
            stacklevel=2,
        )


def _draw_he(layer: Convolution | nn.Linear, name: str) -> None:
    weight = torch.empty_like(layer.weight, requires_grad=False)
    nn.init.kaiming_normal_(weight, nonlinearity="relu")
    hidden = dict(layer.named_parameters(recurse=False))
    with torch.no_grad():
        if isinstance(layer.weight, nn.Parameter):
            layer.weight.copy_(weight)
        elif is_parametrized(layer, "weight"):
            layer.weight = weight  # torch computes the parameters behind it
        elif "weight_g" in hidden:  # torch.nn.utils.weight_norm: directions and their lengths
            lengths = hidden["weight_g"]
            dims = [dim for dim in range(weight.dim()) if lengths.dim() == 0 or lengths.size(dim) == 1]
            hidden["weight_v"].copy_(weight)
            lengths.copy_(torch.linalg.vector_norm(weight, dim=dims, keepdim=True).view_as(lengths))
        elif "weight_orig" in hidden:  # torch.nn.utils.spectral_norm, and masks of torch.nn.utils.prune
            hidden["weight_orig"].copy_(weight)
        else:
            raise InvalidOption(
                f"The weight of {name} is computed from other parameters, for which no new values are drawn. Train "
                "from the inherited weights, or build the network without this normalisation."
            )
    if isinstance(layer.bias, nn.Parameter):
        nn.init.zeros_(layer.bias)
