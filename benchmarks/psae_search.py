"""Claim: with the real estimator the default search is better than the paper's at every budget (ResNet56, -50 % MACs).

Estimated accuracy of the best structure after 10, 50, 100 and 200 evaluations, 4,096 images to recalibrate and 5,000
to score, both from the training data. Numbers, versions, seeds: results/psae_search_*.json.

    python benchmarks/psae_search.py resnet56 --weights FILE --data cifar10:PATH [--methods NAME ...] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch

import aacp
from aacp.runs.provenance import Provenance
from psae_speed import images_of

BUDGETS = (10, 50, 100, 200)


def best_after(history: aacp.History, evaluations: int) -> float:
    return max(candidate.score for candidate in list(history)[:evaluations])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--methods", nargs="+", default=["default", "ide+", "tournament", "paper"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--evaluations", type=int, default=BUDGETS[-1])
    parser.add_argument("--calibration", type=int, default=4096)
    parser.add_argument("--holdout", type=int, default=5000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = aacp.build_model(options.network)
    aacp.load_weights(model, options.weights)
    graph = aacp.trace(model.eval(), aacp.example_input(model))
    calibration, holdout = images_of(options)
    estimate = aacp.PSAE(aacp.Inheritance(model, graph, calibration, device=options.device), holdout)
    space = aacp.SearchSpace(graph)
    budget = aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=options.rate))
    budgets = [count for count in BUDGETS if count <= options.evaluations]
    rows = []
    for name in options.methods:
        for seed in range(options.seeds):
            start = time.perf_counter()
            method = aacp.searcher(name, space, budget, seed=seed)
            found = aacp.run_search(method, estimate, evaluations=options.evaluations)
            scores = [best_after(found.history, count) for count in budgets]
            row = {"method": name, "seed": seed, "after": dict(zip(map(str, budgets), scores, strict=True))}
            row |= {"seconds": time.perf_counter() - start, "best": list(found.best.structure)}
            row |= {"history": [[candidate.score, list(candidate.structure)] for candidate in found.history]}
            rows.append(row)
            print(f"{name:12s} seed {seed}: " + " / ".join(f"{score:.4f}" for score in scores), flush=True)
    for name in options.methods:
        last = [row["after"][str(budgets[-1])] for row in rows if row["method"] == name]
        spread = statistics.stdev(last) if len(last) > 1 else 0.0
        print(f"{name:12s} {statistics.mean(last):.4f} ± {spread:.4f} after {budgets[-1]}")
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    device = torch.cuda.get_device_name() if "cuda" in options.device else "CPU"
    result |= {"torch": torch.__version__, "device": device, "rows": rows}
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"psae_search_{options.network}.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
