"""Which limit on the norm of gradients suits the fine-tuning of networks without normalisation layers?

Small networks without any norm are trained on the digits, cut to uniform widths at half their MACs, and fine-tuned by
the default recipe of the digits: with each limit at its learning rate, and without a limit also at a tenth of it. The
table has the accuracy on the hold-out, since a default is chosen by it; test images are not used.

    python benchmarks/clipping.py [--networks lenet plain deep vgg residual] [--limits 0 1 5] [--seeds 0 1 2]
        [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import aacp
from aacp.data.batches import Batches
from aacp.errors import Diverged
from aacp.train.recipe import DIGITS_FINETUNE
from halving import circumstances

RATE = 0.5  # share of the MACs to remove
TENTH = 0.1  # of the recipe's learning rate, for comparison with a limit
BASE = aacp.Recipe(epochs=30, batch_size=64, lr=1e-3, optimiser="adamw", weight_decay=1e-2)
ROUNDS = 30  # halvings of the interval in which the uniform share of widths lies


def chain(*parts: int | None, ends: list[nn.Module]) -> nn.Sequential:
    """Convolutions of 3x3 pixels with these channels and ReLUs, None for pooling, and what ends the network."""
    layers: list[nn.Module] = []
    inputs = 1
    for channels in parts:
        if channels is None:
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU()]
            inputs = channels
    return nn.Sequential(*layers, *ends)


def linear(*sizes: int) -> list[nn.Module]:
    """Linear layers of these sizes with ReLUs between them."""
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(sizes[0], sizes[1])]
    for inputs, outputs in pairwise(sizes[1:]):
        layers += [nn.ReLU(), nn.Linear(inputs, outputs)]
    return layers


class Residual(nn.Module):
    """Three blocks whose results are added, without norms."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 32, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1))
            for _ in range(3)
        )
        self.last = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        out: Tensor = self.last(x.mean((2, 3)))
        return out


NETWORKS = {
    "lenet": lambda: chain(16, None, 32, None, ends=linear(128, 120, 84, 10)),
    "plain": lambda: chain(32, 32, None, 32, 32, ends=[nn.AdaptiveAvgPool2d(1), *linear(32, 10)]),
    "deep": lambda: chain(32, 32, None, *[32] * 6, ends=[nn.AdaptiveAvgPool2d(1), *linear(32, 10)]),
    "vgg": lambda: chain(32, 32, None, 64, 64, None, 128, 128, ends=[nn.Dropout(0.5), *linear(512, 128, 10)]),
    "residual": Residual,
}


def uniform(graph: aacp.ChannelGraph) -> aacp.Structure:
    """The widest structure of one share of every width that keeps half of the MACs."""
    cost = aacp.macs(graph)
    low, high = 0.0, 1.0
    for _ in range(ROUNDS):
        share = (low + high) / 2
        is_within = float(cost(at(graph, share))) <= (1 - RATE) * cost.full
        low, high = (share, high) if is_within else (low, share)
    return at(graph, low)


def at(graph: aacp.ChannelGraph, share: float) -> aacp.Structure:
    """The structure with this share of every width."""
    return aacp.Structure([max(1, int(share * group.width)) for group in graph.free])


def rows_of(name: str, seed: int, limits: list[float]) -> Iterator[dict[str, Any]]:
    """The results of one network and seed."""
    data = aacp.load_data("digits")
    torch.manual_seed(seed)
    model = NETWORKS[name]()
    aacp.fit(model, data, replace(BASE, seed=seed), device="cpu")
    model.eval()
    graph = aacp.trace(model, torch.zeros(2, 1, 8, 8))
    inheritance = aacp.Inheritance(model, graph, data.train)
    structure = uniform(graph)
    inherited = scored(inheritance.network(structure), data)
    for tenth, limit in [*((1.0, limit) for limit in limits), (TENTH, 0.0)]:
        recipe = replace(DIGITS_FINETUNE, lr=tenth * DIGITS_FINETUNE.lr, clip=limit, seed=seed)
        pruned = inheritance.network(structure)
        try:
            aacp.finetune(pruned, data, recipe, teacher=model, device="cpu")
            found: float | None = scored(pruned, data)
        except Diverged:
            found = None
        same = {"network": name, "seed": seed, "unpruned": scored(model, data), "inherited": inherited}
        yield {**same, "lr": recipe.lr, "clip": limit, "holdout": found}


def scored(model: nn.Module, data: aacp.Data) -> float:
    """The accuracy on the hold-out."""
    return float(aacp.accuracy(model.eval(), Batches.of(data.holdout)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--limits", nargs="+", type=float, default=[0, 1, 5])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    torch.set_num_threads(1)  # small networks take longer with several threads on a busy machine
    rows = []
    for name in options.networks:
        for seed in options.seeds:
            for row in rows_of(name, seed, options.limits):
                rows.append(row)
                print(row, flush=True)
    result = circumstances() | {"recipe": str(DIGITS_FINETUNE), "rate": RATE, "rows": rows}
    (options.out / "clipping.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
