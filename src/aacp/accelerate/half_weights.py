"""Halves: the weights that multiplications read, in half precision, copied all at once.

Autocast makes such copies one by one, at every step, and turns every gradient back by itself: two kernels for each
layer. The numbers are the same. Captured steps use this.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from aacp.torch_internals import copy_each
from aacp.train.teaching import CONVERTIBLE


class Halves:
    """Copies of a network's convolution and linear weights, and the way of their gradients to the weights."""

    def __init__(self, model: nn.Module, half: torch.dtype) -> None:
        # Torch's own layers alone: one that computes something of its weight first would do it in half precision.
        held = [
            (type(module) in CONVERTIBLE and name in ("weight", "bias"), id(parameter))
            for module in model.modules()
            for name, parameter in module.named_parameters(recurse=False)
        ]
        read, others = ({key for is_read, key in held if is_read is wanted} for wanted in (True, False))
        known = {name: p for name, p in model.named_parameters() if id(p) in read - others and p.requires_grad}
        self.model, self.names = model, list(known)
        self.weights: list[torch.Tensor] = list(known.values())
        self.copies = [torch.empty_like(weight, dtype=half).requires_grad_() for weight in self.weights]

    def __call__(self, inputs: Any) -> Any:
        """What the network says of its inputs, with copies made now; gradients will gather in these."""
        with torch.no_grad():
            copy_each(self.copies, self.weights)
        for copy in self.copies:
            copy.grad = None
        arguments = () if isinstance(inputs, dict) else inputs if isinstance(inputs, tuple) else (inputs,)
        named = inputs if isinstance(inputs, dict) else {}
        copies = dict(zip(self.names, self.copies, strict=True))
        # Fabric's wrapper holds the network under two names, and a call that ties them would leave the copies in place.
        # Weights that are tied within the network are read under their other names as they are, and autocast.
        return functional_call(self.model, copies, arguments, named, tie_weights=False)

    @torch.no_grad()
    def hand_over(self) -> None:
        """Give every weight the gradient of its copy, beside what it may have got itself."""
        reached = [(w, c.grad) for w, c in zip(self.weights, self.copies, strict=True) if c.grad is not None]
        gradients = [torch.empty_like(weight) for weight, _ in reached]
        copy_each(gradients, [gradient for _, gradient in reached])
        for (weight, _), gradient in zip(reached, gradients, strict=True):
            weight.grad = gradient if weight.grad is None else weight.grad + gradient
