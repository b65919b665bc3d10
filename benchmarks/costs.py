"""Claim: the MACs and parameters of 1,000 structures of ResNet50 are computed in at most 20 ms together.

python benchmarks/costs.py [--out benchmarks/results/costs.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import aacp
from aacp.zoo.models import build_model, example_input


def milliseconds(function: Callable[[], object], repeats: int = 30) -> list[float]:
    times = []
    for _ in range(repeats + 3):
        start = time.perf_counter()
        function()
        times.append(1e3 * (time.perf_counter() - start))
    return times[3:]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    model = build_model("torchvision:resnet50").eval()
    graph = aacp.trace(model, example_input(model))
    space, generator = aacp.SearchSpace(graph), np.random.default_rng(0)
    structures = np.array([list(space.sample(generator)) for _ in range(1000)])
    macs, params, memory = aacp.macs(graph), aacp.params(graph), aacp.activation_bytes(graph)
    rows = {
        "macs": milliseconds(lambda: macs(structures)),
        "params": milliseconds(lambda: params(structures)),
        "macs and params": milliseconds(lambda: (macs(structures), params(structures))),
        "activation_bytes": milliseconds(lambda: memory(structures)),
    }
    result = {
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "versions": f"python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}",
        "network": f"torchvision ResNet50, {len(graph.free)} free groups, {len(graph.layers)} layers",
        "seed": 0,
        "milliseconds for 1,000 structures": {
            name: {
                "median": round(float(np.median(times)), 2),
                "min": round(min(times), 2),
                "max": round(max(times), 2),
            }
            for name, times in rows.items()
        },
    }
    print(json.dumps(result, indent=2))
    if options.out:
        options.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
