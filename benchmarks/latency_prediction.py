"""Claim: a latency table predicts the seconds of structures it has not seen within about 3 % at the median on ResNet20,
VGG16 (32 px) and MobileNetV2 (224 px), in torch and in ONNX Runtime on a CPU and in torch on a GPU with large batches,
with a rank correlation of at least 0.95 (MobileNetV2 in torch: with --seconds 2; on the GPU: as in gpu.py).

A table is measured (48 structures to fit it, 10 to measure its error). Then 30 more random structures of the space of
step 1/8, with 10 to 80 % fewer MACs, are measured end to end, each in turns with the unpruned network. Predicted and
measured seconds are compared, both relative to the unpruned network. With --draw even, every width is drawn
independently; such structures differ little in their costs. Numbers, versions: results/latency_prediction_*.json.

    python benchmarks/latency_prediction.py [--networks resnet20 ...] [--runtimes torch onnxruntime] [--device cpu]
        [--batch 1] [--threads 2] [--learn 48] [--structures 30] [--draw budgets] [--seconds 1]
        [--tables FOLDER] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aacp
from aacp.latency.calibration import PredictionError
from aacp.latency.timers import NetworkTimer
from aacp.runs.provenance import Provenance

NETWORKS = {"resnet20": (1, 3, 32, 32), "torchvision:mobilenet_v2": (1, 3, 224, 224), "vgg16": (1, 3, 32, 32)}


def drawn(graph: aacp.ChannelGraph, space: aacp.SearchSpace, options: argparse.Namespace) -> list[aacp.Structure]:
    """The structures that a table is tested with."""
    generator = np.random.default_rng(2026)
    if options.draw == "even":
        return [space.sample(generator) for _ in range(options.structures)]
    budgets = [
        aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=float(rate)))
        for rate in np.linspace(0.1, 0.8, options.structures)
    ]
    starts = [[generator.uniform(0.3, 1.0) * group.width for group in graph.free] for _ in budgets]
    found = [aacp.rescale(start, space, budget, generator) for start, budget in zip(starts, budgets, strict=True)]
    return [found[place] for place in generator.permutation(len(found))]


def compared(name: str, runtime: str, options: argparse.Namespace) -> dict[str, Any]:
    """One network in one runtime: its table, and the error of the table on new structures."""
    start = time.perf_counter()
    torch.manual_seed(0)
    model = aacp.build_model(name).eval()
    example = aacp.example_input(model, NETWORKS.get(name))
    graph = aacp.trace(model, example)
    space = aacp.SearchSpace(graph, options.step)
    where = aacp.Deployment(runtime, options.device, options.batch, options.threads)
    with aacp.show_progress() if options.verbose else nullcontext():
        table = aacp.measure_latency(
            model, graph, space, where, example=example, structures=options.learn,
            seconds_per_structure=options.seconds,
            file=options.tables and options.tables / f"{name.rpartition(':')[2]}_{runtime}_{options.device}.json",
        )  # fmt: skip
    measured_after = time.perf_counter() - start
    bench = NetworkTimer(model, graph, example, where, options.seconds)
    runs = [bench(structure) for structure in drawn(graph, space, options)]
    predicted = table.seconds([run.structure for run in runs]) / table.reference
    measured = np.array([run.whole / run.reference for run in runs])
    error = PredictionError.of(predicted, measured, float(np.median([run.noise for run in runs])))
    generator = np.random.default_rng(0)
    rows = np.array([list(space.sample(generator)) for _ in range(1000)])
    pricing = min(_timed(lambda: table.seconds(rows)) for _ in range(5))
    seconds = time.perf_counter() - start
    print(f"{name}, {table.conditions.runtime} {table.conditions.version}, {options.device}: {error}")
    print(
        f"  unpruned {1e3 * table.reference:.3g} ms, structures from {measured.min():.2f} to {measured.max():.2f} of it"
    )
    print(f"  the table's own error: {table.error}")
    print(f"  {1e3 * pricing:.1f} ms to predict 1,000 structures")
    print(f"  {measured_after:.0f} s for the table, {seconds:.0f} s in total", flush=True)
    return {
        "network": name,
        "draw": options.draw,
        "setting": asdict(table.conditions),
        "seconds_unpruned": table.reference,
        "error": asdict(error),
        "own_error": asdict(table.error),
        "predicted": predicted.tolist(),
        "measured": measured.tolist(),
        "noise": [run.noise for run in runs],
        "structures": [list(run.structure) for run in runs],
        "seconds_for_1000_predictions": pricing,
        "seconds_for_table": measured_after,
        "seconds_in_all": seconds,
    }


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--runtimes", nargs="+", default=["torch", "onnxruntime"])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--learn", type=int, default=48, help="structures that the table is fitted to")
    parser.add_argument("--structures", type=int, default=30)
    parser.add_argument("--draw", choices=["budgets", "even"], default="budgets")
    parser.add_argument(
        "--tables", type=Path, help="folder of the tables; an interrupted measurement is resumed from it"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="for each structure")
    parser.add_argument("--step", type=float, default=1 / 8)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
    provenance = Provenance.of(" ".join(["python", *sys.argv]))
    print(provenance)
    for name, runtime in product(options.networks, options.runtimes):
        content = {**asdict(provenance), "torch": torch.__version__, **compared(name, runtime, options)}
        kind = f"{runtime}_{options.device}_{options.batch}" + "_even" * (options.draw == "even")
        file = f"latency_prediction_{name.rpartition(':')[2]}_{kind}.json"
        if options.out:
            (options.out / file).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
