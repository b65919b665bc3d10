"""What the training benchmarks start from: a network cut uniformly to half its MACs, keeping the largest filters."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

import aacp
from aacp.channels import ChannelGraph
from aacp.search.rescaling import Rescaling
from aacp.search.seeds import largest
from aacp.zoo.models import build_model, example_input
from aacp.zoo.weights import load_weights

# Channels come and go in so many: for VGG16 an eighth of its narrowest stage, as the paper's step would have it; the
# narrow ResNets reach -50 % with all widths in proportion only if single channels may go.
STEPS = {"vgg16": 8}


def pair(name: str, weights: Path | None, removed: float = 0.5) -> tuple[nn.Module, nn.Module, str]:
    """The unpruned network, the one cut uniformly so that at least `removed` of its MACs go, and what was done."""
    torch.manual_seed(0)
    model = build_model(name).eval()
    if weights is not None:
        load_weights(model, weights)
    graph = aacp.trace(model, example_input(model))
    space, cost = aacp.SearchSpace(graph, pruning_step=STEPS.get(name, 1)), aacp.macs(graph)
    budget = aacp.Budget(aacp.Limit(cost, pruning_rate=removed))
    counts = space.counts(largest(np.ones(len(space)), Rescaling(space, budget)))
    cut = aacp.shrink(model, graph, largest_filters(model, graph, counts))
    rate = 1 - float(cost(counts)) / cost.full
    return model, cut, f"{name} cut uniformly by {rate:.3f} of its MACs, widths {sorted(set(counts.tolist()))}"


def largest_filters(model: nn.Module, graph: ChannelGraph, counts: np.ndarray) -> dict[str, list[int]]:
    """The units of largest l1-norm of each free group, summed over the convolutions that produce them."""
    norms = np.zeros(len(graph.unit_groups))
    produced = {f"{layer.name}.weight" for layer in graph.layers if layer.is_convolution}
    for tensor in graph.tensors:
        if tensor.name in produced and tensor.lanes[0] is not None:
            lane = graph.lanes[tensor.lanes[0]]
            weights = model.get_parameter(tensor.name).detach().abs().flatten(1).sum(1).numpy()
            np.add.at(norms, lane[lane >= 0], weights[lane >= 0])
    kept = {}
    for group, count in zip(graph.free, counts, strict=True):
        own = norms[graph.unit_groups == graph.groups.index(group)]
        kept[group.name] = sorted(np.argsort(-own, kind="stable")[:count].tolist())
    return kept


def circumstances() -> dict[str, str]:
    """The command, versions and hardware behind a result."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {
        "command": " ".join(["python", *sys.argv]),
        "hardware": gpu,
        "versions": f"python {platform.python_version()}, torch {torch.__version__}, aacp {aacp.__version__}",
    }
