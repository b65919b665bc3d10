"""Operations on any torch module: its tensors, its device, its mode, its arguments, and copies of it."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from aacp.errors import UntraceableModel, first_line
from aacp.torch_internals import forward_hooks, has_hooks, is_compiled, own_buffers, own_parameters


def named_tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Parameters, buffers and plain tensor attributes, each object once, by its first name."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        plain = {key: value for key, value in vars(module).items() if isinstance(value, torch.Tensor)}
        for key, value in [*own_parameters(module).items(), *own_buffers(module).items(), *plain.items()]:
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield (f"{path}.{key}" if path else key), value


def device_of_model(model: nn.Module) -> torch.device:
    """The device of a network's first parameter; the CPU for a network without parameters."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode; each module then returns to the mode it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def positional(model: nn.Module, example: Any) -> tuple[Any, ...]:
    """An example as the positional arguments of a model: a tuple of them, a dictionary by name, or the only one."""
    if isinstance(example, tuple):
        return example
    if isinstance(example, dict) and all(isinstance(key, str) for key in example):
        try:
            bound = inspect.signature(model.forward).bind(**example)
        except TypeError:  # not the names of the arguments: the dictionary itself is the argument
            return (example,)
        if bound.kwargs:
            bound.apply_defaults()  # fills the gaps between those that are given
        if not bound.kwargs:
            return bound.args
    return (example,)


def has_external_references(module: nn.Module) -> bool:
    """Whether something from outside would not be there in a copy, or would not know it."""
    return has_hooks(module) or is_compiled(module)


def copy_module(model: nn.Module, replaced: Mapping[int, torch.Tensor] | None = None) -> nn.Module:
    """A deep copy in which tensors are taken from `replaced` (by id) where they are listed there."""
    memo: dict[int, Any] = dict(replaced or {})
    for module in model.modules():
        for value in vars(module).values():
            if isinstance(value, torch.Tensor) and id(value) not in memo:
                memo[id(value)] = value.detach().clone()  # old-style weight_norm keeps tensors that cannot be copied
    try:
        twin = copy.deepcopy(model, memo)
    except Exception as error:  # whatever the parts of the model raise
        raise UntraceableModel(
            f"{type(model).__name__} cannot be copied: {first_line(error)}. Move what cannot be copied out of it."
        ) from error
    for module in twin.modules():
        for functions in (vars(module), *forward_hooks(module)):
            _rebind_closures(functions, memo)
    return twin


def _rebind_closures(functions: MutableMapping[Any, Any], memo: Mapping[int, Any]) -> None:
    """Functions are not copied: let those of the copy refer to the copy's modules and tensors, not the original's."""
    for key, function in list(functions.items()):
        if isinstance(function, types.FunctionType):
            held = closure_of(function).items()
            parts = {name: item for name, item in held if isinstance(item, (nn.Module, torch.Tensor))}
            copies = {name: memo[id(item)] for name, item in parts.items() if id(item) in memo}
            if copies:
                functions[key] = with_closure(function, copies)


def detach_hooks(model: nn.Module) -> None:
    """Let the hooks of a copy write to copies of what their functions have closed over, not to the caller's lists."""
    for module in model.modules():
        for hooks in forward_hooks(module):
            for key, function in list(hooks.items()):
                if isinstance(function, types.FunctionType):
                    held = closure_of(function).items()
                    own = {name: copy.copy(item) for name, item in held if isinstance(item, (dict, list, set))}
                    hooks[key] = with_closure(function, own) if own else function


def closure_of(function: types.FunctionType) -> dict[str, Any]:
    """The variables a function has closed over, with their values (None for those that have none yet)."""
    names, cells = function.__code__.co_freevars, function.__closure__ or ()
    return {name: _contents(cell) for name, cell in zip(names, cells, strict=True)}


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def with_closure(function: types.FunctionType, values: Mapping[str, Any]) -> types.FunctionType:
    """The same function with other values in some of its variables; the original keeps its own."""
    cells = tuple(
        types.CellType(values[name]) if name in values else cell
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    twin = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__dict__.update(function.__dict__)
    return twin
