"""Claim: MobileNetV2 (224 px) cut to three limits at once, latency -40 % (ONNX Runtime, CPU, 2 threads), MACs -30 % and
parameters -20 %, meets all three as the exported file, measured, with each of five seeds.

A table is measured once; the search of every seed uses it and measures its candidates end to end. Enlarged CIFAR-10
training images replace those of ImageNet, which are not available here, and the score is the mean cosine similarity
between the outputs of the pruned and the unpruned network. Nothing is trained, since training does not change the
latency. The exported files are then timed once more, in turns with the original. Numbers, versions, hardware:
results/latency_limits.json.

    python benchmarks/latency_limits.py --weights FILE --data CIFAR10 [--seeds 5] [--evaluations 40] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
import torch
from torch.nn.functional import interpolate
from torch.utils.data import TensorDataset

import aacp
from aacp.latency.timing import Quartiles
from halving import circumstances
from peers import macs
from psae_speed import likeness

LIMITS = {"latency": 0.4, "macs": 0.3, "params": 0.2}
MODEL = "torchvision:mobilenet_v2"


def pictures(model: torch.nn.Module, path: str, count: int) -> list[TensorDataset]:
    """Three parts of enlarged training images, with the outputs of the unpruned network as targets."""
    source = next(
        aacp.Batches.of(aacp.load_data(f"cifar10:{path}").train, images=3 * count, batch_size=3 * count).inputs()
    )
    whole = interpolate(source, size=(224, 224), mode="bilinear", align_corners=False)
    with torch.no_grad():
        outputs = torch.cat([model(part) for part in whole.split(32)])
    return [TensorDataset(*part) for part in zip(whole.split(count), outputs.split(count), strict=True)]


def shares(folder: Path, model: torch.nn.Module, threads: int) -> dict[str, Any]:
    """The costs of the exported file as shares of the original's, counted and timed without the pipeline's records."""
    (training,) = (folder / "trainings").iterdir()
    pruned, original = training / "pruned.onnx", training / "original.onnx"
    example = torch.zeros(1, 3, 224, 224)
    timed = aacp.time_networks(
        {"original": original, "pruned": pruned}, example, aacp.Deployment(threads=threads), turns=40
    )
    turns = zip(timed["pruned"].seconds, timed["original"].seconds, strict=True)
    latency = Quartiles.of([after / before for after, before in turns])
    network = aacp.load(folder)
    counts = {
        "macs": macs(network, example) / macs(model, example),
        "params": sum(p.numel() for p in network.parameters()) / sum(p.numel() for p in model.parameters()),
    }
    onnx.checker.check_model(str(pruned))
    return {"latency": latency.median, "latency_quartiles": [latency.lower, latency.upper], **counts}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=40)
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = aacp.build_model(MODEL).eval()
    aacp.load_weights(model, options.weights)
    data = aacp.Data(*pictures(model, options.data, options.images), name="enlarged CIFAR-10")
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        example = torch.zeros(1, 3, 224, 224)
        graph = aacp.trace(model, example)
        table = Path(scratch) / "table.json"
        where = aacp.Deployment("onnxruntime", threads=options.threads)
        with aacp.show_progress():
            measured = aacp.measure_latency(model, graph, aacp.SearchSpace(graph), where, example=example, file=table)
        print(measured, flush=True)
        for seed in range(options.seeds):
            begun, folder = time.perf_counter(), Path(scratch) / f"seed{seed}"
            plan = aacp.Plan(
                evaluations=options.evaluations, recipe=None, calibration_images=options.images, seed=seed,
                deployment=where, latency_table=str(table),
            )  # fmt: skip
            found = aacp.prune(model, data, LIMITS, folder, plan=plan, score=likeness, name=MODEL)
            row = shares(folder, model, options.threads)
            row |= {"seed": seed, "score": found.choice.score, "seconds": time.perf_counter() - begun}
            row["checks"] = len((folder / "checks.jsonl").read_text().splitlines())
            row["met"] = all(row[cost] <= 1 - rate for cost, rate in LIMITS.items())
            rows.append(row | {"kept": list(found.choice.counts)})
            print({name: value for name, value in row.items() if name != "kept"}, flush=True)
    print(f"all limits met by the exported file in {sum(row['met'] for row in rows)} of {len(rows)} seeds")
    result = {**circumstances(), "limits": LIMITS, "seeds": rows}
    result |= {
        "table": {
            "seconds": measured.reference,
            "error": asdict(measured.error),
            "setting": asdict(measured.conditions),
        }
    }
    if options.out:
        (options.out / "latency_limits.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
