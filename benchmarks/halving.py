"""The start of the training benchmarks: a network cut uniformly to half its MACs, with its largest filters kept."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import aacp
from aacp.estimate.importance import unit_importance
from aacp.estimate.inheritance import ChannelOrder
from aacp.search.rescaling import Rescaling
from aacp.search.seeds import largest
from aacp.zoo.models import build_model, example_input
from aacp.zoo.weights import load_weights

# The number of channels that are removed at once. For VGG16 it is an eighth of the narrowest stage, as in the paper.
# The narrow ResNets reach -50 % with all widths in proportion only if single channels can be removed.
STEPS = {"vgg16": 8}


def pair(name: str, weights: Path | None, removed: float = 0.5) -> tuple[nn.Module, nn.Module, str]:
    """The unpruned network, one cut uniformly by at least `removed` of its MACs, and a description of the cut."""
    torch.manual_seed(0)
    model = build_model(name).eval()
    if weights is not None:
        load_weights(model, weights)
    graph = aacp.trace(model, example_input(model))
    space, cost = aacp.SearchSpace(graph, pruning_step=STEPS.get(name, 1)), aacp.macs(graph)
    budget = aacp.Budget(aacp.Limit(cost, pruning_rate=removed))
    counts = space.counts(largest(np.ones(len(space)), Rescaling(space, budget)))
    order = ChannelOrder.of(graph, unit_importance(model, graph))
    cut = aacp.shrink(model, graph, order.kept(counts))
    rate = 1 - float(cost(counts)) / cost.full
    return model, cut, f"{name} cut uniformly by {rate:.3f} of its MACs, widths {sorted(set(counts.tolist()))}"


def circumstances() -> dict[str, str]:
    """The command, the versions and the hardware of a result."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {
        "command": " ".join(["python", *sys.argv]),
        "hardware": gpu,
        "versions": f"python {platform.python_version()}, torch {torch.__version__}, aacp {aacp.__version__}",
    }
