"""Sliced execution: one copy of the network that takes on the shape of one structure after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from aacp.data.batches import Batches
from aacp.estimate.inheritance import Order
from aacp.estimate.recalibration import running_norms, settle_statistics
from aacp.graph.slicing import resize, sliced_tensors
from aacp.modules import copy_module, detach_hooks, named_tensors
from aacp.torch_internals import own_buffers, own_parameters, pytree


class Sliced:
    """The network cut to a structure without being copied: slices of the full weights take their place in it."""

    def __init__(self, model: nn.Module, order: Order, calibration: Batches, one_pass: bool = False) -> None:
        device = calibration.device
        self._full = copy_module(model).to(device).eval().requires_grad_(False)
        detach_hooks(self._full)
        self._skeleton = copy_module(self._full)
        self._skeleton.register_forward_pre_hook(_copied, with_kwargs=True)
        self._order, self._calibration = order, calibration
        self._places = _places(self._full, self._skeleton)

    @property
    def norms(self) -> int:
        """How many batch norms there are to recalibrate."""
        return len(running_norms(self._full))

    def network(self, structure: Iterable[int]) -> nn.Module:
        """The network with this structure, inherited and recalibrated; good until the next call."""
        graph = self._order.graph
        units = self._order.units(structure)
        self._skeleton.eval()  # whatever the last score left it in
        sliced = sliced_tensors(self._full, graph, units, shared=True)
        for module, key, full in self._places:
            _put(module, key, sliced[id(full)])
        resize(self._skeleton, graph, units)
        norms = running_norms(self._skeleton)
        if norms:
            with torch.no_grad():
                settle_statistics(self._skeleton, norms, self._calibration)
        return self._skeleton


def _copied(_: nn.Module, arguments: Any, named: Any) -> Any:
    """Inputs that a network may write into: those that are scored again and again stay as they are."""
    return pytree.tree_map_only(torch.Tensor, torch.clone, (arguments, named))


def _places(full: nn.Module, skeleton: nn.Module) -> list[tuple[nn.Module, str, torch.Tensor]]:
    """Where in the skeleton each tensor of the full network belongs, all its names included."""
    modules = dict(skeleton.named_modules())
    known = {id(tensor) for _, tensor in named_tensors(full)}
    return [
        (modules[path], key, value)
        for path, module in full.named_modules()
        for holder in (own_parameters(module), own_buffers(module), vars(module))
        for key, value in holder.items()
        if isinstance(value, torch.Tensor) and id(value) in known
    ]


def _put(module: nn.Module, key: str, value: torch.Tensor) -> None:
    for holder in (own_parameters(module), own_buffers(module), vars(module)):
        if key in holder:
            holder[key] = value  # type: ignore[assignment]
