"""Memory layouts: convolutions are faster with channels last, but the code of some networks fails with it.

In that layout the channels of a position are neighbours in memory. `x.view(n, -1)` then fails on what a convolution
gives, unless it has one position: only `reshape` and `flatten` may join channels with positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from aacp.pytorch.internals import pytree
from aacp.pytorch.modules import copy_module, device_of_model

PLAIN = torch.contiguous_format
CHANNELS_LAST = torch.channels_last
OF_VIEW = "view size is not compatible"  # in the error of `x.view` for tensors that are not contiguous
CONSTANTS = (int, float, complex, str, type(None))  # what outputs hold besides tensors
FASTER_ON = ("cpu", "cuda")  # devices whose convolutions are faster with channels last


def faster_layout(device: torch.device) -> torch.memory_format:
    """The layout in which convolutions are faster on a device."""
    return CHANNELS_LAST if device.type in FASTER_ON else PLAIN


def lay_out(model: nn.Module, layout: torch.memory_format) -> nn.Module:
    """Change the layout of a network's weights, in place; its activations follow them."""
    for parameter in _kernels(model):
        parameter.data = parameter.data.contiguous(memory_format=layout)
    return model


@contextmanager
def laid_out(model: nn.Module, layout: torch.memory_format) -> Iterator[None]:
    """Give a network's weights a layout while the context lasts, in which they must not change."""
    before = [(parameter, parameter.data) for parameter in _kernels(model)]
    lay_out(model, layout)
    try:
        yield
    finally:
        for parameter, data in before:
            parameter.data = data


def _kernels(model: nn.Module) -> list[nn.Parameter]:
    """The parameters with two dimensions of positions, such as the weights of convolutions."""
    return [parameter for parameter in model.parameters() if parameter.dim() == 4]


def usable_layout(model: nn.Module, run: Callable[[nn.Module], object]) -> torch.memory_format:
    """The faster layout for a network on its device if its code and that of its user run with it, else the plain one.

    Args:
        model: the network, of which a copy is run.
        run: runs a network, in evaluation mode and without gradients, and returns its outputs.
    """
    layout = faster_layout(device_of_model(model))
    try:
        twin = lay_out(copy_module(model).eval(), layout)
        with torch.no_grad():
            outputs = run(twin)
    except Exception:  # of a network that cannot be copied or fails; if it fails in any layout, its next run says so
        return PLAIN
    return PLAIN if may_hide_tensors(outputs) else layout


def may_hide_tensors(values: Any) -> bool:
    """Whether `contiguous` may not reach all tensors in values, as in objects of classes that torch does not know."""
    return not all(isinstance(leaf, (torch.Tensor, *CONSTANTS)) for leaf in pytree.tree_leaves(values))


def contiguous(values: Any) -> Any:
    """Nested values with their tensors in the plain layout."""
    return pytree.tree_map_only(torch.Tensor, torch.Tensor.contiguous, values)


def guard(model: nn.Module) -> tuple[RemovableHandle, ...]:
    """Let a network write into copies of its inputs, and give outputs in the plain layout.

    Data are scored again and again, and the functions of users may expect outputs in that layout.
    """
    before = model.register_forward_pre_hook(_copy_inputs, with_kwargs=True)
    return before, model.register_forward_hook(_contiguous_outputs)


@contextmanager
def guarded(model: nn.Module) -> Iterator[None]:
    """Guard what a network reads and gives while the context lasts, as `guard` does."""
    hooks = guard(model)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _copy_inputs(_: nn.Module, arguments: Any, named: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, (arguments, named))


def _contiguous_outputs(_: nn.Module, __: Any, outputs: Any) -> Any:
    return contiguous(outputs)
