"""How far the estimate of a search is above the accuracy on test images, before training.

The hold-out of a run from a public checkpoint was part of what the checkpoint was trained on, so the estimate flatters.
This takes the structures that `aacp prune` found for ResNet56 (folders of results/), cuts the checkpoint to them,
recalibrates it on as many training images as the runs did, and scores it on all test images. Nothing is trained.

    python benchmarks/estimate_level.py --weights FILE --data FOLDER [--device cpu] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import aacp
import repair_treatments as shared

RESULTS = Path(__file__).with_name("results")
RUNS = {"-50 %": "prune_cifar10_finetune_mixed", "-70 %": "prune_cifar10_finetune_mixed_70"}
CALIBRATION = 4096


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--data", required=True, help="folder of the CIFAR-10 binaries")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = aacp.build_model("resnet56").eval()
    aacp.load_weights(model, options.weights)
    graph = aacp.trace(model, aacp.example_input(model))
    data = aacp.load_data(f"cifar10:{options.data}")
    order = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0))
    inheritance = aacp.Inheritance(model, graph, data.train.subset(order[:CALIBRATION]), device=options.device)
    test = aacp.Batches.of(data.test, device=options.device)
    rows = []
    for limit, folder in RUNS.items():
        for seed in (0, 1):
            found = json.loads((RESULTS / folder / f"default-{seed}" / "structure.json").read_text())
            network = inheritance.network(found["counts"])
            rows.append({"macs": limit, "seed": seed, "estimate": found["score"], "test": aacp.accuracy(network, test)})
            print(rows[-1], flush=True)
    shared.write(options.out, "estimate_level", shared.circumstances(options.device) | {"rows": rows})


if __name__ == "__main__":
    main()
