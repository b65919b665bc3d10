"""Claim: on an H200, 1,000 structures of ResNet56 at -50 % MACs are scored in 24 s, warm-up included.

4,096 images to recalibrate, 5,000 to score. The same run scores all of them a second time with a new estimator, times
the eager reference in single precision on the first 100 structures, and computes the rank correlation between the two.
Numbers, versions: results/psae_speed_*.json.

    python benchmarks/psae_speed.py resnet56 --weights FILE --data cifar10:PATH [--device cuda] [--out FOLDER]
    python benchmarks/psae_speed.py torchvision:mobilenet_v2 --weights FILE --data noise:224 --compiled

With --compiled it also times a forward pass of the unpruned network over the same images, in bfloat16 and compiled by
torch.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import aacp
from aacp.runs.provenance import Provenance
from aacp.search.correlation import spearman

WARM_UP = 2  # passes that are not counted: the network is compiled in the first


def structures_of(graph: aacp.ChannelGraph, rate: float, count: int) -> list[aacp.Structure]:
    """Different random structures that use the whole budget."""
    space, generator = aacp.SearchSpace(graph), np.random.default_rng(0)
    budget = aacp.Budget(aacp.Limit(aacp.macs(graph), pruning_rate=rate))
    found: dict[aacp.Structure, None] = {}
    while len(found) < count:
        start = [generator.uniform(0.3, 1.0) * group.width for group in graph.free]
        found[aacp.rescale(start, space, budget, generator)] = None
    return list(found)


def images_of(options: argparse.Namespace) -> tuple[Any, Any]:
    """Calibration and held-out images, both from the training data."""
    images = aacp.load_data(options.data).train
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    chosen = order[: options.calibration + options.holdout]
    return images.subset(chosen[: options.calibration]), images.subset(chosen[options.calibration :])


def smooth_noise(options: argparse.Namespace, size: int) -> tuple[Any, Any]:
    """Random images in place of a data set; the targets are the outputs of the unpruned network."""
    count = options.calibration + options.holdout
    coarse = torch.randn(count, 3, 7, 7, generator=torch.Generator().manual_seed(0)).split(500)
    inputs = torch.cat([F.interpolate(part, size=size, mode="bilinear") for part in coarse])
    calibration, holdout = inputs[: options.calibration], inputs[options.calibration :]
    model = copy.deepcopy(options.model).to(options.device)
    with torch.no_grad():
        outputs = torch.cat([model(part.to(options.device)).cpu() for part in holdout.split(500)])
    return calibration, (holdout, outputs)


def likeness(network: torch.nn.Module, batches: aacp.Batches) -> float:
    """The mean cosine similarity between the outputs of a network and those of the unpruned one."""
    with torch.no_grad():
        values = [F.cosine_similarity(network(inputs), outputs) for inputs, outputs in batches]
    return float(torch.cat(values).mean())


def measure(
    options: argparse.Namespace,
    label: str,
    structures: list[aacp.Structure],
    execution: Any,
    reconstruction: Any = None,
) -> dict[str, Any]:
    """The seconds from the construction of the estimator to the last score."""
    start = time.perf_counter()
    inheritance = aacp.Inheritance(
        options.model,
        options.graph,
        options.calibration_images,
        reconstruction=reconstruction,
        device=options.device,
    )
    estimate = aacp.PSAE(inheritance, options.holdout_images, score=options.score, execution=execution)
    first = estimate(structures[0])
    warm = time.perf_counter() - start
    scores = [first, *map(estimate, structures[1:])]
    seconds = time.perf_counter() - start
    each = 1e3 * (seconds - warm) / max(1, len(structures) - 1)
    row = {"structures": len(structures), "seconds": seconds, "warm_up": warm, "ms_each": each, "scores": scores}
    print(
        f"{label:20s} {len(structures):5d} in {seconds:7.2f} s: first {warm:5.2f} s, then {each:6.2f} ms each",
        flush=True,
    )
    del estimate
    torch.cuda.empty_cache()
    return row


def compiled_forward(options: argparse.Namespace) -> dict[str, Any]:
    """The time of a pass of the unpruned network over all images that an estimate reads, median of five."""
    parts = (options.calibration_images, options.holdout_images)
    batches = [aacp.Batches.of(part, device=options.device) for part in parts]
    model = copy.deepcopy(options.model).to(options.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    network = torch.compile(model, dynamic=False)
    seconds = []
    with torch.no_grad(), torch.autocast(options.device, torch.bfloat16):
        for _ in range(WARM_UP + 5):
            begun = time.perf_counter()
            for inputs in (inputs for part in batches for inputs in part.inputs()):
                network(inputs.contiguous(memory_format=torch.channels_last))
            if "cuda" in options.device:
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - begun)
    row = {"images": sum(part.images for part in batches), "ms": 1e3 * median(seconds[WARM_UP:])}
    print(f"compiled forward pass, bfloat16: {row['ms']:.1f} ms for {row['images']} images", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("network")
    parser.add_argument("--weights")
    parser.add_argument("--data", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--structures", type=int, default=1000)
    parser.add_argument("--reference", type=int, default=100)
    parser.add_argument("--calibration", type=int, default=4096)
    parser.add_argument("--holdout", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--reconstruction", choices=["repair"], help="time estimates with repair too")
    parser.add_argument("--compiled", action="store_true", help="time a compiled forward pass too")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False  # the reference computes in single precision
    model = aacp.build_model(options.network)
    if options.weights:
        aacp.load_weights(model, options.weights)
    options.model = model.eval()
    options.graph = aacp.trace(model, aacp.example_input(model))
    structures = structures_of(options.graph, options.rate, options.structures)
    kind, _, size = options.data.partition(":")
    if kind == "noise":
        options.calibration_images, options.holdout_images = smooth_noise(options, int(size))
        options.score = likeness
    else:
        options.calibration_images, options.holdout_images = images_of(options)
        options.score = aacp.accuracy
    torch.ones(1, device=options.device)  # starts the driver before the time is measured
    few = structures[: options.reference]
    rows = {
        "masked": measure(options, "masked", structures, "masked"),
        "masked, again": measure(options, "masked, again", structures, "masked"),  # libraries and kernels are loaded
        "eager reference": measure(options, "eager reference", few, "sliced"),
    }
    if options.reconstruction:
        rows["masked, repaired"] = measure(options, "masked, repaired", structures, "masked", options.reconstruction)
        ratio = rows["masked, repaired"]["ms_each"] / rows["masked"]["ms_each"]
        print(f"an estimate with repair takes {ratio:.2f} times one without")
    if options.compiled:
        rows["compiled forward"] = compiled_forward(options)
        ratio = rows["masked"]["ms_each"] / rows["compiled forward"]["ms"]
        print(f"an estimate takes {ratio:.2f} times a compiled forward pass over its images")
    exact = rows["eager reference"]["scores"]
    row = rows["masked"]
    row["spearman"] = spearman(row["scores"][: len(few)], exact)
    row["speed_up"] = rows["eager reference"]["ms_each"] / row["ms_each"]
    row["largest_difference"] = max(abs(a - b) for a, b in zip(row["scores"], exact, strict=False))
    print(
        f"masked: Spearman {row['spearman']:.4f} with the reference, {row['speed_up']:.1f} times as fast, "
        f"scores differ by at most {row['largest_difference']:.4f}"
    )
    report(options, rows)


def report(options: argparse.Namespace, rows: dict[str, Any]) -> None:
    device = torch.cuda.get_device_name() if "cuda" in options.device else "CPU"
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    result |= {
        "torch": torch.__version__,
        "device": device,
        "calibration": options.calibration,
        "holdout": options.holdout,
    }
    result |= {"rate": options.rate, "network": options.network, "rows": rows}
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / f"psae_speed_{options.network.split(':')[-1]}.json").write_text(
            json.dumps(result, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
