"""Parts that a user of the library may write: an importance, a search method, a cost, an optimiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

import aacp
from aacp.search.baselines import UniformShrinkage


def last_first(model: nn.Module, graph: aacp.ChannelGraph) -> dict[str, Any]:
    """The last channels matter most."""
    return {group.name: np.arange(group.width, dtype=float) for group in graph.free}


def first_first(model: nn.Module, graph: aacp.ChannelGraph) -> dict[str, Any]:
    """The first channels matter most."""
    return {group.name: -np.arange(group.width, dtype=float) for group in graph.free}


class OwnSearch(UniformShrinkage):
    """A search method that the library does not know by name."""


def energy(graph: aacp.ChannelGraph) -> aacp.Cost:
    """Joules, as a function of the counts."""
    return aacp.cost_of(lambda structure: 0.5 * sum(structure), graph, "energy", "J")


def rmsprop(parameters: Any, lr: float) -> torch.optim.Optimizer:
    return torch.optim.RMSprop(parameters, lr=lr)
