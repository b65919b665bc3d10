"""Importance: a number for each unit of a group; the units with the largest numbers are kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from aacp.channels.graph import ChannelGraph
from aacp.channels.lanes import Lane
from aacp.data.batches import Batches
from aacp.errors import InvalidOption
from aacp.graph.slicing import require_match
from aacp.pytorch.internals import BatchNorm
from aacp.pytorch.modules import evaluating, named_tensors
from aacp.repairs.grams import Grams
from aacp.repairs.obs import activation_scores, removal
from aacp.user.code import users_function
from aacp.user.options import require_known
from aacp.user.values import counted

Scores = NDArray[np.float64]  # one per unit of the graph
GroupScores = Mapping[str, ArrayLike]  # one number per unit of each group, by the name of the group
Importance = (
    str | Callable[[nn.Module, ChannelGraph], GroupScores] | Callable[[nn.Module, ChannelGraph, Batches], GroupScores]
)
Rows = tuple[torch.Tensor, Lane]  # one row per index of the lane
BY_READERS = ("activation", "obs")  # criteria by what the layers that read a channel lose; they need images
CRITERIA = ("l1", "l2", "bn", "random", *BY_READERS)


def unit_importance(
    model: nn.Module,
    graph: ChannelGraph,
    importance: Importance = "l1",
    seed: int = 0,
    calibration: Batches | None = None,
    grams: Grams | None = None,
) -> Scores:
    """How much each unit matters, larger is more; only the order within a group counts.

    Args:
        model: the unpruned network.
        graph: its channel graph.
        importance: "l1" and "l2" are norms of the filters that produce a channel, summed over all layers that produce
            it; "bn" is the size of the batch norms' scales (l1 where a group has none); "random" is the paper's control
            (Table 3). "activation" and "obs" are what the layers that read a channel lose, without and with repair; see
            `aacp.repairs.obs`. A function takes (model, graph), or (model, graph, calibration) if it requires three
            arguments, and returns one number per unit for each group of `graph.free`, by the group's name.
        seed: the seed of "random".
        calibration: images from the training data, for "activation", "obs" and functions that take them.
        grams: the Gram matrices of the model on these images, if they are known.
    """
    require_match(model, graph)
    require_criterion(importance)
    if callable(importance):
        return _from_user(_called(importance, model, graph, calibration), graph)
    if importance == "random":
        return np.random.default_rng(seed).random(len(graph.unit_groups))
    if importance in BY_READERS:
        return _by_readers(model, graph, importance, grams or Grams.of(model, graph, _required(calibration)))
    norm = 2 if importance == "l2" else 1
    with evaluating(model), torch.no_grad():  # spectral norms change when they are read in training mode
        scores, seen = _summed(graph, _filters(model, graph), norm)
    # Some layers are functions that have no weight of their own: there, every parameter with the channels in its first
    # dimension counts.
    fallback, _ = _summed(graph, _first_dimensions(model, graph), norm)
    scores = np.where(seen, scores, fallback)
    if importance == "bn":
        scales, scaled = _summed(graph, _batch_norm_scales(model, graph), 1)
        scores = np.where(scaled, scales, scores)
    return scores


def _by_readers(model: nn.Module, graph: ChannelGraph, importance: str, grams: Grams) -> Scores:
    """Scores by what the readers of a channel lose; groups that no product reads are ordered by l1, with a note."""
    scores, is_read = activation_scores(grams)
    fallback = unit_importance(model, graph, "l1")
    for group in graph.free:
        here = graph.slice_of(group)
        found = removal(grams, group) if importance == "obs" else None
        if found is not None:
            scores[here] = found.scores
        elif importance == "obs" or not is_read[here].any():
            scores[here] = fallback[here]
            grams.note(f"Nothing that repair knows reads the channels of {group.name}: they are ordered by l1.")
    return scores


def _required(calibration: Batches | None) -> Batches:
    if calibration is None:
        raise InvalidOption(
            "The importance takes calibration images, but there are none here. Give calibration images."
        )
    return calibration


def _called(
    importance: Callable[..., GroupScores], model: nn.Module, graph: ChannelGraph, calibration: Batches | None
) -> GroupScores:
    """The scores of a user's function, which is given the calibration images if it requires a third argument."""
    arguments = (model, graph, _required(calibration)) if _requires_three_arguments(importance) else (model, graph)
    with users_function("importance function", "(model, graph) or with (model, graph, calibration)"):
        return importance(*arguments)


def _requires_three_arguments(function: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # functions that are written in C may have no signature
        return False
    try:
        signature.bind(None, None)
    except TypeError:
        return True
    return False


def require_criterion(importance: Importance) -> None:
    """Reject what is neither the name of a criterion nor a function."""
    if not callable(importance):
        require_known("importance", importance, CRITERIA, ", or give a function")


def _filters(model: nn.Module, graph: ChannelGraph) -> Iterator[Rows]:
    """The filters of every layer, one per row, as the layer uses them.

    Weights that the layer computes (weight norm) are included, and shared weights occur once. Each row produces one
    channel; in a transposed convolution the filters lie in the second dimension, group by group.
    """
    modules = dict(model.named_modules())
    seen: list[torch.Tensor] = []
    for layer in {layer.name: layer for layer in graph.layers}.values():
        weight = getattr(modules.get(layer.name), "weight", None)
        if layer.output is None or not isinstance(weight, torch.Tensor) or weight.dim() < 2:
            continue
        if any(weight is other for other in seen):
            continue
        seen.append(weight)
        lane = graph.lanes[layer.output]
        if layer.kind.startswith("conv_transpose"):
            groups = max(1, len(lane) // weight.size(1))
            weight = weight.reshape(groups, -1, *weight.shape[1:]).movedim(2, 1).flatten(0, 1)
        if len(weight) == len(lane):
            yield weight.flatten(1), lane


def _first_dimensions(model: nn.Module, graph: ChannelGraph) -> Iterator[Rows]:
    """Every parameter whose first dimension holds channels, one row per channel."""
    weights = dict(named_tensors(model))
    for tensor in graph.tensors:
        if tensor.is_parameter and len(tensor.shape) > 1 and tensor.lanes[0] is not None:
            yield weights[tensor.name].flatten(1), graph.lanes[tensor.lanes[0]]


def _batch_norm_scales(model: nn.Module, graph: ChannelGraph) -> Iterator[Rows]:
    """The scales of every batch norm, one per row."""
    modules = dict(model.named_modules())
    weights = dict(named_tensors(model))
    for tensor in graph.tensors:
        path, _, key = tensor.name.rpartition(".")
        is_scale = key == "weight" and isinstance(modules.get(path), BatchNorm)
        if is_scale and tensor.lanes[0] is not None:
            yield weights[tensor.name][:, None], graph.lanes[tensor.lanes[0]]


def _summed(graph: ChannelGraph, rows_of_units: Iterator[Rows], norm: int) -> tuple[Scores, NDArray[np.bool_]]:
    """For each unit the sum of the norms of its rows, and whether it has a row."""
    scores = np.zeros(len(graph.unit_groups))
    seen = np.zeros(len(graph.unit_groups), dtype=bool)
    for rows, units in rows_of_units:
        sizes = torch.linalg.vector_norm(rows.detach().double(), ord=norm, dim=1).cpu().numpy()
        # Paper: coupled layers are not mentioned. Here they keep the same channels, ranked by the sum of their norms.
        np.add.at(scores, units[units >= 0], sizes[units >= 0])
        seen[units[units >= 0]] = True
    return scores, seen


def _from_user(given: GroupScores, graph: ChannelGraph) -> Scores:
    """The scores that a user's function returned, one per unit; rejects missing and infinite ones."""
    if not isinstance(given, Mapping):
        raise InvalidOption(
            f"The importance function returned a {type(given).__name__}, not a dictionary. "
            "Return one finite number per channel for every group of graph.free, by the group's name."
        )
    scores = np.zeros(len(graph.unit_groups))
    for group in graph.free:
        values = _numbers(given.get(group.name, ()))
        if values.shape != (group.width,) or not np.isfinite(values).all():
            raise InvalidOption(
                f"The importance function returned {counted(values.size, 'number')} "
                f"({int(np.isfinite(values).sum())} finite) for group {group.name!r}, which has "
                f"{counted(group.width, 'channel')}. "
                "Return one finite number per channel for every group of graph.free."
            )
        scores[graph.slice_of(group)] = values
    return scores


def _numbers(given: ArrayLike | torch.Tensor) -> NDArray[np.float64]:
    """Scores as an array in the host's memory; an empty one if they are not numbers."""
    values = given.detach().cpu() if isinstance(given, torch.Tensor) else given
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        return np.zeros(0)
