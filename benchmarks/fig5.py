"""What the searched networks keep of each block (the paper's Fig. 5, there for ResNet50 on ImageNet).

The structures are those that `aacp prune` found for ResNet56 and VGG16 on CIFAR-10 with a limit on MACs alone, from the
folders in results/ that `RUNS` names. The paper observes that deep stages keep more than early ones, and that at the
tighter limit the first block of a stage keeps more than the blocks in its middle. Numbers: results/fig5.json.

    python benchmarks/fig5.py [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import aacp
import repair_treatments as shared
from aacp.report.blocks import kept_shares

RESULTS = Path(__file__).with_name("results")
STAGES = {"resnet56": (9, 9, 9), "vgg16": (2, 2, 3, 3, 3)}  # the blocks of each stage; of VGG16, its convolutions
RUNS = {
    ("resnet56", "-50 %"): [f"prune_cifar10_finetune_mixed/default-{seed}" for seed in (0, 1)],
    ("resnet56", "-70 %"): [f"prune_cifar10_finetune_mixed_70/default-{seed}" for seed in (0, 1)],
    ("resnet56", "-70 %, our base"): [f"search_pays_resnet56_70_100_epochs/search-{seed}" for seed in (0, 1, 2)],
    ("vgg16", "-50 %"): ["prune_vgg16/50"],
    ("vgg16", "-70 %"): ["prune_vgg16/70"],
    ("vgg16", "-70 %, another base"): [f"search_pays_vgg16_70_100_epochs/search-{seed}" for seed in (0, 1, 2)],
}


def shares_of(graph: aacp.ChannelGraph, run: str) -> list[float]:
    """The share that each block keeps in the structure of a run."""
    counts = json.loads((RESULTS / run / "structure.json").read_text())["counts"]
    return list(kept_shares(graph, counts).values())


def stages_of(network: str, shares: list[float]) -> list[list[float]]:
    """The shares of the blocks of each stage."""
    stages = []
    begin = 0
    for blocks in STAGES[network]:
        stages.append(shares[begin : begin + blocks])
        begin += blocks
    return stages


def row_of(network: str, graph: aacp.ChannelGraph, runs: list[str]) -> dict[str, Any]:
    """The shares of all blocks, each the mean over the runs, and their means in each stage."""
    found = [shares_of(graph, run) for run in runs]
    blocks = [fmean(shares) for shares in zip(*found, strict=True)]
    stages = stages_of(network, blocks)
    return {
        "runs": runs,
        "blocks": blocks,
        "stages": [fmean(stage) for stage in stages],
        "first": [stage[0] for stage in stages],
        "middle": [fmean(stage[1:-1]) if len(stage) > 2 else None for stage in stages],
        "last": [stage[-1] for stage in stages],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    graphs = {name: aacp.trace(aacp.build_model(name), torch.zeros(1, 3, 32, 32)) for name in STAGES}
    rows = [
        {"network": network, "limit": limit, **row_of(network, graphs[network], runs)}
        for (network, limit), runs in RUNS.items()
    ]
    for part in ("stages", "first", "middle", "last"):
        print(part)
        lines = [[row["network"], row["limit"], *(shown(share) for share in row[part])] for row in rows]
        width = max(map(len, lines))
        lines = [line + [""] * (width - len(line)) for line in lines]
        print(shared.table(["network", "MACs", *(f"stage {place + 1}" for place in range(width - 2))], lines))
    shared.write(options.out, "fig5", shared.circumstances("cpu") | {"rows": rows})


def shown(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


if __name__ == "__main__":
    main()
