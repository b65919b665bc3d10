"""Independent checks: torch's own counter, and the original network with its removed weights set to zero."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

import aacp
from aacp.channels.graph import ChannelGraph
from graph.micro_networks import Micro


@cache
def traced(micro: Micro) -> ChannelGraph:
    """The graph of a micro network, traced once in a process; tracing does not change the network."""
    with torch.random.fork_rng(devices=[]):
        model = micro.build()
        before = copy.deepcopy(model.state_dict())
        graph = aacp.trace(model, micro.example())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    return graph


def counted_macs(model: nn.Module, arguments: tuple[Any, ...]) -> int:
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(*arguments)
    return int(counter.get_total_flops()) // 2


def zero_masked(model: nn.Module, graph: ChannelGraph, units: np.ndarray) -> nn.Module:
    """A copy of the original, full width, whose weights are zero wherever a removed channel takes part."""
    masked = copy.deepcopy(model)
    parameters = dict(masked.named_parameters()) | dict(masked.named_buffers())
    for tensor in graph.tensors:
        if tensor.name not in parameters or tensor.name.endswith(("running_mean", "running_var")):
            continue
        for dim, lane in enumerate(tensor.lanes):
            if lane is not None:
                stays = torch.from_numpy(units[graph.lanes[lane]] | (graph.lanes[lane] < 0))
                shape = [1] * len(tensor.shape)
                shape[dim] = -1
                parameters[tensor.name].data.mul_(stays.reshape(shape))
    return masked


def half(graph: ChannelGraph, seed: int) -> dict[str, Any]:
    """About half of every free group, at random."""
    generator = np.random.default_rng(seed)
    return {g.name: np.sort(generator.permutation(g.width)[: max(1, g.width // 2)]) for g in graph.free}


def tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def in_double(arguments: Any) -> Any:
    return pytree.tree_map(
        lambda t: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, arguments
    )
