"""What docs/training.md assumes: a network, its pruned form, data, a loss and a score."""

import torch
from torch import Tensor, nn

import aacp
from preludes.small import SmallNetwork, loaders, trained_network

model = trained_network()
train_loader, test_loader = loaders(160)
data = aacp.Data.of(train_loader, test_loader)
graph = aacp.trace(model, torch.randn(1, 1, 8, 8))
pruned = aacp.shrink(model, graph, [8, 16])
build = SmallNetwork
network = build()
loader = data.train
held_out = data.holdout
recipe = aacp.Recipe(epochs=1, batch_size=32, lr=0.02)


def my_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.multi_margin_loss(outputs, labels)


def my_score(network: nn.Module, batches: aacp.Batches) -> float:
    return aacp.accuracy(network, batches)
