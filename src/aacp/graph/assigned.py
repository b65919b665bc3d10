"""Assignments: which module of a network assigns tensors that it computed to attributes or to the data of weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from aacp.errors import UntraceableModel
from aacp.pytorch.modules import named_tensors

SHOWN = 3  # names in a message


class AssignedInForward(UntraceableModel):
    """The forward of a network assigns a tensor that it computed, which an export cannot express."""

    @classmethod
    def by(cls, who: str, what: str = "an attribute or to the data of a parameter") -> AssignedInForward:
        """The error with a message that names the module and what it assigns."""
        return cls(
            f"The forward of {who} assigns a tensor that it computed to {what}. Do this once before tracing, outside "
            "of forward."
        )


def named_assignment(model: nn.Module, arguments: tuple[Any, ...]) -> AssignedInForward | None:
    """The error that names the module and what it assigns; None if nothing is found. The model runs once."""
    paths = {module: path for path, module in model.named_modules()}
    before: dict[nn.Module, dict[str, int]] = {}
    found: list[tuple[nn.Module, list[str]]] = []

    def enter(module: nn.Module, *_: Any) -> None:
        before[module] = _places(module)

    def leave(module: nn.Module, *_: Any) -> None:
        changed = [name for name, place in _places(module).items() if before[module].get(name) != place]
        if changed:
            found.append((module, changed))

    for module in paths:
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)
    with torch.no_grad():
        model(*arguments)
    if not found:
        return None
    module, names = found[0]  # an inner module ends before the modules around it
    owner = type(module).__name__
    return AssignedInForward.by(f"{paths[module]} ({owner})" if paths[module] else owner, ", ".join(names[:SHOWN]))


def _places(module: nn.Module) -> dict[str, int]:
    """Where in memory the tensors of a module and of its submodules are."""
    return {name: value.data_ptr() for name, value in named_tensors(module)}
