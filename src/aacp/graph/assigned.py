"""Assignments: which attributes, or data of weights, the modules of a network replace by tensors that they computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aacp.errors import UntraceableModel
from aacp.pytorch.modules import cuda_devices, named_tensors, private_copy, submodules

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


def assigned_attributes(model: nn.Module, arguments: Callable[[], tuple[Any, ...]]) -> set[str]:
    """The names of the tensor attributes that a forward assigns anew, such as features that a network keeps.

    They are results of its last run, not weights. A copy runs once on the arguments if the model has tensor attributes;
    if it fails, none are found.
    """
    if not any(map(_held, submodules(model))):
        return set()
    given, twin = arguments(), private_copy(model)
    before = {path: _held(module) for path, module in twin.named_modules()}
    try:
        with torch.random.fork_rng(devices=cuda_devices(model)), torch.no_grad():
            twin(*given)
    except Exception:  # whatever the code of the model raises: tracing explains it
        return set()
    after = {path: vars(module) for path, module in twin.named_modules()}
    return {
        f"{path}.{key}" if path else key
        for path, held in before.items()
        for key, value in held.items()
        if after[path].get(key) is not value
    }


def _held(module: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a module that are neither parameters nor buffers."""
    return {key: value for key, value in vars(module).items() if isinstance(value, torch.Tensor)}


def _places(module: nn.Module) -> dict[str, int]:
    """Where in memory the tensors of a module and of its submodules are."""
    return {name: value.data_ptr() for name, value in named_tensors(module)}
