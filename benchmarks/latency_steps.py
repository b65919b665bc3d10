"""Claim: at the same MACs, widths at the steps found by timing are faster than arbitrary widths.

Structures with the given share of the MACs are drawn from two spaces: that of single channels, from which a search with
a limit on MACs may deliver, and that of the discovered steps. Both are rescaled to use the whole budget of MACs. Each
pair is measured end to end, as the file or module that would be delivered, in turns with the original.
Numbers, versions, hardware: results/latency_steps.json.

    python benchmarks/latency_steps.py [--networks resnet20 ...] [--runtimes torch onnxruntime] [--pairs 5]
        [--rate 0.5] [--threads 2] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aacp
from aacp.runs.provenance import Provenance
from latency_prediction import NETWORKS


def drawn(space: aacp.SearchSpace, budget: aacp.Budget, count: int) -> list[aacp.Structure]:
    """Structures that use the whole budget."""
    generator = np.random.default_rng(0)
    return [aacp.rescale(np.asarray(space.sample(generator)), space, budget, generator) for _ in range(count)]


def compared(name: str, runtime: str, options: argparse.Namespace) -> dict[str, Any]:
    """One network in one runtime: structures of both kinds, timed in turns."""
    start = time.perf_counter()
    torch.manual_seed(0)
    model = aacp.build_model(name).eval()
    example = aacp.example_input(model, NETWORKS.get(name))
    graph = aacp.trace(model, example)
    macs = aacp.macs(graph)
    budget = aacp.Budget(aacp.Limit(macs, pruning_rate=options.rate))
    where = aacp.Deployment(runtime, options.device, options.batch, options.threads)
    steps = aacp.discover_steps(model, graph, where, example=example)
    spaces = {"odd": aacp.SearchSpace(graph, 1), "auto": aacp.SearchSpace(graph, steps)}
    chosen = {kind: drawn(space, budget, options.pairs) for kind, space in spaces.items()}
    found = aacp.check_latency(
        model, graph, [*chosen["odd"], *chosen["auto"]], where, example=example, turns=options.turns
    )
    ratios = np.array([checked.ratio.median for checked in found]).reshape(2, -1)
    share = {kind: [float(macs(np.asarray(s))) / macs.full for s in structures] for kind, structures in chosen.items()}
    seconds = time.perf_counter() - start
    odd, auto = np.median(ratios, axis=1)
    print(
        f"| {name} | {runtime} | {dict(sorted(Counter(steps.values()).items()))} | {np.mean(share['odd']):.3f} | "
        f"{np.mean(share['auto']):.3f} | {odd:.3f} | {auto:.3f} | {odd / auto:.2f} | {seconds:.0f} s |",
        flush=True,
    )
    return {
        "network": name,
        "setting": where.to_json(),
        "steps": steps,
        "macs": share,
        "checked": [
            {"structure": list(c.structure), "ratio": c.ratio.to_json(), "seconds": c.seconds.to_json()} for c in found
        ],
        "odd_over_auto": float(odd / auto),
        "seconds_in_all": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--runtimes", nargs="+", default=["torch", "onnxruntime"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    provenance = Provenance.of(" ".join(["python", *sys.argv]))
    print(provenance)
    print(
        "| network | runtime | groups by step | MACs, odd | MACs, auto | time, odd | time, auto | odd / auto | took |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    rows = [compared(name, runtime, options) for name in options.networks for runtime in options.runtimes]
    if options.out:
        content = {**asdict(provenance), "torch": torch.__version__, "rows": rows}
        (options.out / "latency_steps.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
