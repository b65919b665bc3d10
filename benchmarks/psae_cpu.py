"""Claim: on a CPU, scoring a structure of ResNet20 takes at most 1.15 times a forward pass of the cut network (median).

The forward pass is that of the network that was cut beforehand, over the same images: 1,024 to recalibrate and 1,024 to
score. Both are timed in turns on 12 structures at -50 % MACs; the result is the median of the ratios. Numbers,
versions: results/psae_cpu.json.

    python benchmarks/psae_cpu.py --weights FILE --data cifar10:PATH [--network resnet20] [--reconstruction repair]
        [--out FOLDER]
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
from psae_speed import images_of, structures_of


def forward_seconds(network: torch.nn.Module, *sets: aacp.Batches) -> float:
    start = time.perf_counter()
    with torch.no_grad():
        for batches in sets:
            for inputs in batches.inputs():
                network(inputs)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="resnet20")
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--structures", type=int, default=12)
    parser.add_argument("--calibration", type=int, default=1024)
    parser.add_argument("--holdout", type=int, default=1024)
    parser.add_argument("--reconstruction", choices=["repair"], help="time estimates with repair too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = aacp.build_model(options.network)
    aacp.load_weights(model, options.weights)
    graph = aacp.trace(model.eval(), aacp.example_input(model))
    calibration, holdout = images_of(options)
    inheritance = aacp.Inheritance(model, graph, calibration)
    estimate = aacp.PSAE(inheritance, holdout)
    repaired = aacp.Inheritance(model, graph, calibration, reconstruction=options.reconstruction)
    with_repair = aacp.PSAE(repaired, holdout) if options.reconstruction else None
    rows = []
    for structure in structures_of(graph, 0.5, options.structures + 1):
        network = inheritance.network(structure)
        plain = forward_seconds(network, inheritance.calibration, estimate.holdout)
        start = time.perf_counter()
        score = estimate(structure)
        rows.append({"score": score, "estimate": time.perf_counter() - start, "forward": plain})
        if with_repair is not None:
            start = time.perf_counter()
            rows[-1] |= {"repaired_score": with_repair(structure), "repaired": time.perf_counter() - start}
    rows = rows[1:]  # the first is a warm-up
    ratios = [row["estimate"] / row["forward"] for row in rows]
    print(
        f"{options.network}: {statistics.median(row['estimate'] for row in rows):.2f} s per estimate, "
        f"{statistics.median(ratios):.3f} times a plain forward (from {min(ratios):.3f} to {max(ratios):.3f})"
    )
    if with_repair is not None:
        against = [row["repaired"] / row["estimate"] for row in rows]
        print(f"an estimate with repair takes {statistics.median(against):.2f} times one without (median)")
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    result |= {"torch": f"{torch.__version__}, {torch.get_num_threads()} threads", "ratios": ratios, "rows": rows}
    if options.out:
        (options.out / "psae_cpu.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
