"""HalfWeights: half-precision copies of the weights that multiplications read, all made at once.

Autocast makes these copies one by one in every step and converts every gradient by itself, with two kernels for each
layer. The results are the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from aacp.accelerate.convolutions import FastConv2d
from aacp.accelerate.late_gradients import LateGradients
from aacp.pytorch.internals import copy_each
from aacp.pytorch.modules import submodules
from aacp.train.teaching import CONVERTIBLE


class HalfWeights:
    """Runs a network with half-precision copies of its convolution and linear weights."""

    def __init__(self, model: nn.Module, half: torch.dtype) -> None:
        chosen = _converted_parameters(model)
        self.model = model
        self.names = list(chosen)
        self.weights: list[torch.Tensor] = list(chosen.values())
        self.copies = [torch.empty_like(weight, dtype=half).requires_grad_() for weight in self.weights]
        self.late_gradients = LateGradients(self.copies)

    def __call__(self, inputs: Any) -> Any:
        """The network's outputs, computed with new copies. The backward pass accumulates gradients in the copies."""
        with torch.no_grad():
            copy_each(self.copies, self.weights)
        for copy in self.copies:
            copy.grad = None
        arguments = () if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else (inputs,)
        named = inputs if isinstance(inputs, dict) else {}
        copies = dict(zip(self.names, self.copies, strict=True))
        # Fabric's wrapper holds the network under two names; with tie_weights the call would leave the copies in place.
        # If the network itself holds a weight under a second name, autocast converts the weight that is read there.
        with self.late_gradients.collecting():
            return functional_call(self.model, copies, arguments, named, tie_weights=False)

    @torch.no_grad()
    def pass_on_gradients(self) -> None:
        """Add the gradient of every copy to that of its weight."""
        for copy, gradient in self.late_gradients.take():
            copy.grad = gradient if copy.grad is None else copy.grad + gradient
        reached = [(w, c.grad) for w, c in zip(self.weights, self.copies, strict=True) if c.grad is not None]
        gradients = [torch.empty_like(weight) for weight, _ in reached]
        copy_each(gradients, [gradient for _, gradient in reached])
        for (weight, _), gradient in zip(reached, gradients, strict=True):
            weight.grad = gradient if weight.grad is None else weight.grad + gradient


def _converted_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trained parameters that no modules but torch's own convolutions and linear layers and our convolutions hold.

    A subclass of these may first compute something from its weight, which must happen in single precision.
    """
    converted: set[int] = set()
    others: set[int] = set()
    for module in submodules(model):
        for name, parameter in module.named_parameters(recurse=False):
            is_multiplied = type(module) in (*CONVERTIBLE, FastConv2d) and name in ("weight", "bias")
            (converted if is_multiplied else others).add(id(parameter))
    chosen = converted - others
    return {name: p for name, p in model.named_parameters() if id(p) in chosen and p.requires_grad}
