"""What docs/latency.md assumes: a network, its graph and space, an input, two structures, and a count of cycles."""

import torch
from torch import nn

import aacp
from preludes.small import trained_network

model = trained_network().eval()
x = torch.randn(1, 1, 8, 8)
graph = aacp.trace(model, x)
space = aacp.SearchSpace(graph, pruning_step=1 / 4)
best = aacp.Structure([8, 16])
second = aacp.Structure([12, 8])


def count_cycles(network: nn.Module, example: torch.Tensor) -> int:
    return 1000 * sum(parameter.numel() for parameter in network.parameters())
