"""What `make demo` shows: a small residual network traced, cut to about half its MACs, and checked.

python examples/demo.py
"""

from __future__ import annotations

import time

import numpy as np
import torch
from torch import Tensor, nn

import aacp


class Block(nn.Module):
    """Two convolutions with squeeze-and-excitation, added to what came in."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, hidden, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(hidden)
        self.conv2 = nn.Conv2d(hidden, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, 8, 1), nn.ReLU(), nn.Conv2d(8, width, 1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (x + y * self.gate(y).sigmoid()).relu()


def network() -> nn.Module:
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64 * 4, 10))
    return nn.Sequential(stem, Block(64, 96), nn.MaxPool2d(2), Block(64, 128), head).eval()


def milliseconds(models: list[nn.Module], x: Tensor) -> list[float]:
    """Median time of one forward pass each, the models taking turns so that noise hits them alike."""
    times = np.zeros((25, len(models)))
    with torch.no_grad():
        for row in times:
            for column, model in enumerate(models):
                start = time.perf_counter()
                model(x)
                row[column] = 1e3 * (time.perf_counter() - start)
    return [float(value) for value in np.median(times[5:], axis=0)]


def main() -> None:
    model, x = network(), torch.randn(8, 3, 32, 32)

    graph = aacp.trace(model, x)  # verified before it is returned
    print(graph, "\n")

    space = aacp.SearchSpace(graph, pruning_step=1 / 8)
    macs, params = aacp.macs(graph), aacp.params(graph)
    print(f"{space.size:,} structures with a pruning step of 1/8 of each width")
    generator = np.random.default_rng(0)
    structures = [space.sample(generator) for _ in range(2000)]
    costs = macs(np.array([list(structure) for structure in structures]))
    chosen = structures[int(np.argmin(np.abs(costs / macs.full - 0.5)))]
    print(f"of 2,000 random ones, the closest to half the MACs keeps {list(chosen)} channels\n")

    smaller = aacp.shrink(model, graph, chosen)
    kept = ", ".join(f"{group.name} {count}/{group.width}" for group, count in zip(graph.free, chosen, strict=True))
    before, after = milliseconds([model, smaller], x)
    print(f"cut:        {kept}")
    print(f"MACs:       {macs.full:,} -> {macs(chosen):,} ({macs(chosen) / macs.full - 1:+.1%})")
    print(f"parameters: {params.full:,} -> {params(chosen):,} ({params(chosen) / params.full - 1:+.1%})")
    print(f"forward:    {before:.1f} -> {after:.1f} ms on this CPU, 8 images")
    print("The smaller network is a module of the same class, ready to be trained on.")


if __name__ == "__main__":
    main()
