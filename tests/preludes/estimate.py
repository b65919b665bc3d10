"""What docs/estimate.md assumes: a network with three free groups, images, and a score."""

import torch
from torch import nn

import aacp


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())


torch.manual_seed(0)
pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten())
model = nn.Sequential(block(1, 20), block(20, 32), block(32, 64), *pooled, nn.Linear(64, 10)).eval()
images, labels = torch.randn(160, 1, 4, 4), torch.randint(10, (160,))
train_images, held_out = images[:16], (images[16:32], labels[16:32])
train_data = pairs = (images[32:], labels[32:])
graph = aacp.trace(model, images[:1])
space = aacp.SearchSpace(graph)
budget = aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=0.5))
structures = [[5, 8, 16], [10, 16, 32], [20, 32, 64]]


def my_iou(network: nn.Module, batches: aacp.Batches) -> float:
    return aacp.accuracy(network, batches)
