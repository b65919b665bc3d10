"""Slicing: copy a network with fewer channels, slice its weights and set its hard-coded sizes."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from aacp.channels.elements import HardCodedSize
from aacp.channels.graph import ChannelGraph
from aacp.channels.lanes import stays
from aacp.errors import GraphMismatch
from aacp.graph.tracked import CLOSURE, is_settings, with_fields
from aacp.pytorch.internals import Convolution, Norm, TransposedConvolution, own_parameters
from aacp.pytorch.modules import closure_of, copy_module, named_tensors, submodules, with_closure


def cut(model: nn.Module, graph: ChannelGraph, units: NDArray[np.bool_]) -> nn.Module:
    """A copy of the model, of the same class, with only the units that are marked True."""
    smaller = copy_module(model, sliced_tensors(model, graph, units))
    resize(smaller, graph, units)
    return smaller


def resize(model: nn.Module, graph: ChannelGraph, units: NDArray[np.bool_]) -> None:
    """Set all sizes in the attributes of a sliced network to those of its weights."""
    set_sizes(model, graph, [int(stays(lane, units).sum()) for lane in graph.lanes])


def set_sizes(model: nn.Module, graph: ChannelGraph, lengths: Sequence[int]) -> None:
    """Set all sizes in the attributes of a network whose lanes have these lengths."""
    for size in graph.sizes:
        _set_size(model, size, size.value(lengths[size.lane]))
    for module in submodules(model):
        _match_attributes(module)


def sliced_tensors(model: nn.Module, graph: ChannelGraph, units: NDArray[np.bool_]) -> dict[int, torch.Tensor]:
    """The sliced form of every parameter, buffer and tensor attribute, by the id of the original.

    Args:
        model: the network.
        graph: its channel graph.
        units: a mask over all units (True: the unit stays).
    """
    require_match(model, graph)
    left = [stays(lane, units) for lane in graph.lanes]
    lanes = {tensor.name: tensor.lanes for tensor in graph.tensors}
    return {id(value): _sliced(value, lanes.get(name, ()), left) for name, value in named_tensors(model)}


def require_match(model: nn.Module, graph: ChannelGraph) -> None:
    """Reject a graph that was traced from another network."""
    known = {tensor.name: tensor.shape for tensor in graph.tensors}
    found = {name: tuple(value.shape) for name, value in named_tensors(model)}
    parameters = [tensor.name for tensor in graph.tensors if tensor.is_parameter]
    differing = [name for name in [*found, *parameters] if known.get(name) != found.get(name)]
    for name in differing:
        if name not in passing_attributes(model, graph):
            here = f"has shape {found[name]}" if name in found else "is missing"
            raise GraphMismatch(
                f"{name} {here} in this network, but the graph knows "
                f"{known.get(name, 'no such tensor')}. Trace this network again."
            )


def passing_attributes(model: nn.Module, graph: ChannelGraph) -> set[str]:
    """The names of tensors that a network may create again when it runs: plain attributes without channels."""
    return plain_attributes(model) - {tensor.name for tensor in graph.tensors if set(tensor.lanes) - {None}}


def plain_attributes(model: nn.Module) -> set[str]:
    """The names of tensor attributes, or None in their place, that are neither parameters nor buffers."""
    names: set[str] = set()
    for path, module in model.named_modules():
        for key, value in vars(module).items():
            if value is None or isinstance(value, torch.Tensor):
                names.add(f"{path}.{key}" if path else key)
    return names


def _sliced(value: torch.Tensor, lanes: Sequence[int | None], stays: list[NDArray[np.bool_]]) -> torch.Tensor:
    result = value.detach()
    for dim, lane in enumerate(lanes):
        if lane is not None and not stays[lane].all():
            index = torch.from_numpy(np.flatnonzero(stays[lane])).to(value.device)
            result = result.index_select(dim, index)
    if result.data_ptr() == value.data_ptr():
        result = result.clone()
    if isinstance(value, nn.Parameter):
        return nn.Parameter(result, requires_grad=value.requires_grad)
    return result


def _set_size(model: nn.Module, size: HardCodedSize, value: int) -> None:
    """Write the number at the end of a path: an attribute, an index in a list, a variable of a closure."""
    module = model.get_submodule(size.module)
    name, *rest = size.path
    vars(module)[str(name)] = _with_number(vars(module)[str(name)], tuple(rest), value)


def size_in(model: nn.Module, size: HardCodedSize) -> int:
    """The number at the end of a path."""
    name, *path = size.path
    holder = vars(model.get_submodule(size.module))[str(name)]
    while path:
        key = path.pop(0)
        if key == CLOSURE and isinstance(holder, types.FunctionType):
            holder = closure_of(holder)[str(path.pop(0))]
        elif is_settings(holder):
            holder = getattr(holder, str(key))
        else:
            holder = holder[key]
    return int(holder)


def _with_number(holder: Any, path: tuple[str | int, ...], value: int) -> Any:
    """A copy of a nested value with another number at the end of a path."""
    if not path:
        return value
    if path[0] == CLOSURE and isinstance(holder, types.FunctionType):
        return with_closure(holder, {str(path[1]): value})
    key = path[0]
    if isinstance(holder, dict):
        return {**holder, key: _with_number(holder[key], path[1:], value)}
    if is_settings(holder):
        return with_fields(holder, {str(key): _with_number(getattr(holder, str(key)), path[1:], value)})
    items = list(holder)
    items[int(key)] = _with_number(items[int(key)], path[1:], value)
    return type(holder)(items)


def _match_attributes(module: nn.Module) -> None:
    """Set the sizes in the attributes of torch's own layers to those of their weights."""
    weight = getattr(module, "weight", None)
    shape = tuple(weight.shape) if isinstance(weight, torch.Tensor) else ()
    if isinstance(module, TransposedConvolution):
        module.in_channels = shape[0]
        module.out_channels = shape[1] * module.groups
    elif isinstance(module, Convolution):
        module.in_channels = shape[1] * module.groups
        module.out_channels = shape[0]
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = shape
    elif isinstance(module, Norm):
        held = [weight, module.running_mean]
        module.num_features = next((len(t) for t in held if t is not None), module.num_features)
    elif isinstance(module, nn.GroupNorm) and shape:
        module.num_channels = shape[0]
    elif isinstance(module, nn.RNNBase):
        module.input_size = int(own_parameters(module)["weight_ih_l0"].shape[1])  # type: ignore[union-attr]
    elif isinstance(module, nn.PReLU):
        module.num_parameters = shape[0]
