"""Optimisers: those that a recipe names, or what a function of the user makes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from aacp.errors import InvalidOption
from aacp.train.recipe import Recipe
from aacp.user.code import users_function

BETA2 = 0.999  # the decay of AdamW's second moment
Groups = list[dict[str, Any]]


def optimiser_for(
    model: nn.Module, recipe: Recipe, device: torch.device, half: torch.dtype | None = None
) -> torch.optim.Optimizer:
    """The optimiser of a recipe for the parameters of a network that require gradients.

    Args:
        model: the network.
        recipe: the recipe.
        device: where the network is.
        half: the type in which mixed precision multiplies; None without mixed precision.
    """
    groups = parameter_groups(model, recipe)
    if callable(recipe.optimiser):
        return _users_optimiser(recipe, groups)
    # Fabric does not clip gradients of fused optimisers in float16. Torch fuses optimisers of real parameters only.
    are_real = all(parameter.is_floating_point() for group in groups for parameter in group["params"])
    is_fused = device.type in ("cpu", "cuda") and half is not torch.float16 and are_real
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr=recipe.lr, betas=(recipe.momentum, BETA2), fused=is_fused)
    # The learning rate is a tensor on the device, which a CUDA graph of the step reads anew in every replay. Steps
    # without a fused optimiser are not captured.
    rate = torch.tensor(recipe.lr, device=device) if is_fused else recipe.lr
    found = torch.optim.SGD(groups, lr=rate, momentum=recipe.momentum, nesterov=recipe.nesterov, fused=is_fused)
    if is_fused and recipe.momentum:
        _start_momentum(found)
    return found


def _start_momentum(optimiser: torch.optim.SGD) -> None:
    """Start the momentum of all parameters with 0, as torch does in a first step.

    The fused SGD of torch fails if a parameter gets its first gradient later than others, as with stochastic depth.
    """
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            optimiser.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that require gradients; a network without any is rejected."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise InvalidOption(
            "No parameter of the network requires a gradient, so that nothing would be trained. Call "
            "requires_grad_(True) on the network or on the layers to be trained."
        )
    return trained


def parameter_groups(model: nn.Module, recipe: Recipe) -> Groups:
    """The parameters that require gradients, with their weight decay."""
    trained = trained_parameters(model)
    decayed = [parameter for parameter in trained if recipe.decays_norms or parameter.dim() > 1]
    spared = [parameter for parameter in trained if not recipe.decays_norms and parameter.dim() <= 1]
    groups: Groups = [
        {"params": decayed, "weight_decay": recipe.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def lay_out_state(optimiser: torch.optim.Optimizer) -> None:
    """Lay out what an optimiser keeps for each weight like that weight, whose layout has changed.

    The fused optimisers of torch read memory in the order of the weights, and do not compare layouts.
    """
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            for value in optimiser.state.get(parameter, {}).values():
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                    value.data = torch.empty_like(parameter, dtype=value.dtype, device=value.device).copy_(value)


def _users_optimiser(recipe: Recipe, groups: Groups) -> torch.optim.Optimizer:
    make: Any = recipe.optimiser
    with users_function("optimiser function", "(parameter groups, lr)"):
        found = make(groups, recipe.lr)
    if not isinstance(found, torch.optim.Optimizer):
        raise InvalidOption(
            f"The optimiser function returned a {type(found).__name__}. Return a torch.optim.Optimizer."
        )
    return found
