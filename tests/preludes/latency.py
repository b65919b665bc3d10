"""What docs/latency.md assumes: a traced network, two structures of it, and a simulator's cost function."""

import torch
from torch import nn

import aacp

model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Conv2d(16, 4, 1)).eval()
x = torch.randn(1, 3, 8, 8)
graph = aacp.trace(model, x)
space = aacp.SearchSpace(graph, 1 / 4)
best = aacp.Structure([8, 8])
second = aacp.Structure([12, 8])


def count_cycles(network, example):
    return sum(parameter.numel() for parameter in network.parameters())
