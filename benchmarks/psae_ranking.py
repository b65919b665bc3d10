"""Claim: PSAE ranks 12 structures of ResNet56 at -50 % MACs as fine-tuning does, with a Spearman correlation above 0.9.

The structures are spread evenly over the range of estimates in a search (the history of psae_search.py, or random
structures). Each is fine-tuned for a few epochs on the training images without the hold-out, and scored on the test
images, which neither the estimate nor the training has used. Numbers, versions: results/psae_ranking_*.json.

    python benchmarks/psae_ranking.py resnet56 --weights FILE --data cifar10:PATH --history psae_search_resnet56.json
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

import aacp
from aacp.runs.provenance import Provenance
from aacp.train.recipe import FINETUNE
from psae_speed import structures_of


def spread(options: argparse.Namespace, graph: aacp.ChannelGraph) -> list[list[int]]:
    """Structures at even steps of the estimated score, from the lowest to the highest."""
    if options.history is None:
        return [list(structure) for structure in structures_of(graph, options.rate, options.structures)]
    rows = json.loads(options.history.read_text())["rows"]
    known = sorted({(score, tuple(counts)) for row in rows for score, counts in row["history"]})
    wanted = np.linspace(known[0][0], known[-1][0], options.structures)
    scores = np.array([score for score, _ in known])
    chosen = [int(np.abs(scores - score).argmin()) for score in wanted]
    return [list(known[index][1]) for index in dict.fromkeys(chosen)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--structures", type=int, default=12)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--calibration", type=int, default=4096)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = aacp.build_model(options.network)
    aacp.load_weights(model, options.weights)
    graph = aacp.trace(model.eval(), aacp.example_input(model))
    data = aacp.load_data(options.data)
    calibration = data.train.subset(range(min(options.calibration, len(data.train))))
    estimate = aacp.PSAE(aacp.Inheritance(model, graph, calibration, device=options.device), data.holdout)
    recipe = FINETUNE.scaled(options.epochs)
    with aacp.show_progress():
        found = aacp.ranking(
            estimate, spread(options, graph), data.train, outcome=data.test, recipe=recipe, teacher=model
        )
    print(found)
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    device = torch.cuda.get_device_name() if "cuda" in options.device else "CPU"
    result |= {"torch": torch.__version__, "device": device, "recipe": asdict(recipe)}
    result |= {"spearman": found.spearman, "kendall": found.kendall, "estimates": found.estimates}
    result |= {"outcomes": found.outcomes, "structures": [list(structure) for structure in found.structures]}
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"psae_ranking_{options.network}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
