"""Importance: how much each channel of a group matters, from the weights that make it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from aacp.channels import ChannelGraph, Tensor
from aacp.errors import InvalidOption
from aacp.graph.program import named_tensors

Scores = NDArray[np.float64]  # one per unit of the graph
Importance = str | Callable[[nn.Module, ChannelGraph], Mapping[str, ArrayLike]]
CRITERIA = ("l1", "l2", "bn", "random")


def unit_importance(model: nn.Module, graph: ChannelGraph, importance: Importance = "l1", seed: int = 0) -> Scores:
    """How much each unit matters, larger is more; only the order within a group counts.

    "l1" and "l2" are norms of the filters that make a channel, summed over all layers that make it; "bn" the size of
    the batch norms' scales (l1 where a group has none); "random" the paper's control (Table 3). A function of yours
    takes model and graph and returns the scores of each free group by its name.
    """
    if callable(importance):
        return _from_user(importance(model, graph), graph)
    if importance not in CRITERIA:
        raise InvalidOption(f"importance is {importance!r}, but must be one of {CRITERIA} or a function. Choose one.")
    if importance == "random":
        return np.random.default_rng(seed).random(len(graph.unit_groups))
    weights = {name: value.detach() for name, value in named_tensors(model)}
    norm = 2 if importance == "l2" else 1
    scores, seen = _summed(graph, weights, _makers(graph), norm)
    # Layers whose weights are computed (weight norm and the like): what holds the channels first counts.
    others = ((tensor, 0) for tensor in graph.tensors if tensor.is_parameter and len(tensor.shape) > 1)
    spare, _ = _summed(graph, weights, others, norm)
    scores = np.where(seen, scores, spare)
    if importance == "bn":
        scales, scaled = _summed(graph, weights, _batch_norm_scales(model, graph), 1)
        scores = np.where(scaled, scales, scores)
    return scores


def _makers(graph: ChannelGraph) -> Iterator[tuple[Tensor, int]]:
    """The weights that make channels, each once, and the dimension along which they lie."""
    tensors = {tensor.name: tensor for tensor in graph.tensors}
    kinds = {f"{layer.name}.weight".removeprefix("."): layer.kind for layer in graph.layers}
    for name, kind in kinds.items():
        if name in tensors and len(tensors[name].shape) > 1:
            yield tensors[name], 1 if kind.startswith("conv_transpose") else 0


def _batch_norm_scales(model: nn.Module, graph: ChannelGraph) -> Iterator[tuple[Tensor, int]]:
    modules = dict(model.named_modules())
    for tensor in graph.tensors:
        path, _, key = tensor.name.rpartition(".")
        if key == "weight" and isinstance(modules.get(path), nn.modules.batchnorm._BatchNorm):
            yield tensor, 0


def _summed(
    graph: ChannelGraph, weights: Mapping[str, torch.Tensor], makers: Iterator[tuple[Tensor, int]], norm: int
) -> tuple[Scores, NDArray[np.bool_]]:
    """For each unit the norms of its slices of these tensors, summed, and whether there was any."""
    scores = np.zeros(len(graph.unit_groups))
    seen = np.zeros(len(graph.unit_groups), dtype=bool)
    for tensor, dim in makers:
        lane = tensor.lanes[dim]
        if lane is None:
            continue
        rows = (
            weights[tensor.name].movedim(dim, 0).flatten(1) if len(tensor.shape) > 1 else weights[tensor.name][:, None]
        )
        sizes = torch.linalg.vector_norm(rows.double(), ord=norm, dim=1).cpu().numpy()
        units = graph.lanes[lane]
        np.add.at(scores, units[units >= 0], sizes[units >= 0])
        seen[units[units >= 0]] = True
    return scores, seen


def _from_user(given: Mapping[str, ArrayLike], graph: ChannelGraph) -> Scores:
    scores = np.zeros(len(graph.unit_groups))
    start = 0
    for group in graph.groups:
        if group.frozen is None:
            values = np.asarray(given.get(group.name, ()), dtype=np.float64)
            if values.shape != (group.width,) or not np.isfinite(values).all():
                raise InvalidOption(
                    f"The importance function gave group {group.name!r} {values.size} numbers "
                    f"({int(np.isfinite(values).sum())} finite), but it has {group.width} channels. "
                    "Return one finite number per channel for every group of graph.free."
                )
            scores[start : start + group.width] = values
        start += group.width
    return scores
