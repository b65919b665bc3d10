"""What docs/latency.md assumes: a network, its graph and space, an input, and two structures."""

import torch

import aacp
from preludes.small import trained_network

model = trained_network().eval()
x = torch.randn(1, 1, 8, 8)
graph = aacp.trace(model, x)
space = aacp.SearchSpace(graph, pruning_step=1 / 4)
best = aacp.Structure([8, 16])
second = aacp.Structure([12, 8])
