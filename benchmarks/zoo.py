"""Trace many networks: which ones pass, the share of channels that can be pruned, and the seconds it takes.

    python benchmarks/zoo.py [--out benchmarks/results/zoo.json] [--only NAME ...]

The names of the networks are in benchmarks/zoo.txt.

A network passes if every free group is cut to about half and the smaller network runs, keeps its output shape, and
equals the masked original: within 1e-5 of the output's scale in float32 or, if rounding errors are larger, within 1e-9
in float64, or within what docs/tracing.md allows for networks that amplify rounding errors. MACs and parameters, before
and after, must equal torch's own count.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aacp
from aacp.graph.tracing import prepare
from aacp.zoo.models import build_model, example_input
from peers import macs as counted_macs

NAMES = Path(__file__).with_name("zoo.txt")


def half_of(graph: aacp.ChannelGraph, generator: np.random.Generator) -> dict[str, Any]:
    return {g.name: np.sort(generator.permutation(g.width)[: max(1, g.width // 2)]) for g in graph.free}


def examine(name: str) -> dict[str, Any]:
    torch.manual_seed(0)
    model = build_model(name).eval()
    example = example_input(model)
    start = time.perf_counter()
    graph = aacp.trace(model, example)
    seconds = time.perf_counter() - start

    kept = half_of(graph, np.random.default_rng(1))
    smaller = aacp.shrink(model, graph, kept)
    counts = np.array([len(kept[group.name]) for group in graph.free])
    bench = prepare(model, example)
    difference = bench.difference_when(graph, graph.kept_units(kept))
    exact = {
        "macs": int(aacp.macs(graph)(graph.full)) == counted_macs(model, example),
        "macs_cut": int(aacp.macs(graph)(counts)) == counted_macs(smaller, example),
        "params": int(aacp.params(graph)(graph.full)) == sum(p.numel() for p in model.parameters()),
        "params_cut": int(aacp.params(graph)(counts)) == sum(p.numel() for p in smaller.parameters()),
    }
    frozen = {group.name: group.frozen for group in graph.groups if group.frozen not in (None, "network output")}
    return {
        "passes": difference is None,
        "difference": difference,
        "exact": exact,
        "seconds": round(seconds, 2),
        "free_share": round(graph.free_share, 4),
        "groups": len(graph.groups),
        "free": len(graph.free),
        "macs_left": round(float(aacp.macs(graph)(counts)) / aacp.macs(graph).full, 3),
        "frozen": frozen,
        "input": list(example.shape),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    names = [name for name in NAMES.read_text().split() if not options.only or name in options.only]
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        try:
            results[name] = examine(name)
        except Exception as error:
            results[name] = {"passes": False, "error": f"{type(error).__name__}: {str(error)[:300]}"}
            if options.only:
                traceback.print_exc()
        row = results[name]
        print(
            f"{'pass' if row['passes'] else 'FAIL'} {name:45s} {row.get('seconds', 0):6.2f} s  "
            f"free {row.get('free_share', 0):6.1%}  {row.get('error') or row.get('difference') or ''}"
            f"{'' if all(row.get('exact', {}).values()) else str(row['exact'])}",
            flush=True,
        )
    report(results, options.out)


def report(results: dict[str, dict[str, Any]], out: Path | None) -> None:
    done = [row for row in results.values() if "seconds" in row]
    seconds = [row["seconds"] for row in done]
    summary = {
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "networks": len(results),
        "passed": sum(row["passes"] for row in results.values()),
        "exact costs": sum(all(row["exact"].values()) for row in done),
        "median free share of convolution channels": statistics.median(row["free_share"] for row in done),
        "mean free share of convolution channels": round(statistics.mean(row["free_share"] for row in done), 4),
        "median seconds to trace and verify": statistics.median(seconds),
        "longest seconds": max(seconds),
    }
    print(json.dumps(summary, indent=2))
    if out:
        out.write_text(json.dumps({"summary": summary, "networks": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
