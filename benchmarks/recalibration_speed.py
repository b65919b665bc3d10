"""Claim: on an H200, recalibrating MobileNetV2 on 1,000 images of 224 px takes at most 1 s.

Random weights and random images; the statistics do not matter for the time. Each repeat starts with a fresh copy of the
network; the first one, which also loads libraries and chooses convolution algorithms, is printed on its own. A plain
forward pass over the same images, in batches of 256, is timed beside it. Numbers, versions, hardware:
results/recalibration_speed.json.

    python benchmarks/recalibration_speed.py [--network mobilenet_v2] [--images 1000] [--pixels 224] [--device cuda]
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

import aacp
from aacp.runs.provenance import Provenance
from repair_treatments import wait_for


def seconds_of(work: Any, device: torch.device) -> float:
    """How long a call takes until the device is done."""
    wait_for(device)
    start = time.perf_counter()
    work()
    wait_for(device)
    return time.perf_counter() - start


def forward(network: nn.Module, batches: aacp.Batches) -> None:
    with torch.no_grad():
        for inputs in batches.inputs():
            network(inputs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", default="mobilenet_v2", help="name of a torchvision network")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.manual_seed(0)
    network = aacp.build_model(f"torchvision:{options.network}").eval().to(device)
    images = torch.randn(options.images, 3, options.pixels, options.pixels)
    batches = aacp.Batches.of(images, device=device)
    recalibrated = []
    for _ in range(options.repeats + 1):
        twin = copy.deepcopy(network)
        recalibrated.append(seconds_of(lambda twin=twin: aacp.recalibrate(twin, batches), device))
    passes = [seconds_of(lambda: forward(network, batches), device) for _ in range(options.repeats + 1)]
    first, *others = recalibrated
    print(
        f"{options.network}, {options.images} images of {options.pixels} px: recalibrated in "
        f"{statistics.median(others):.3f} s (first call {first:.3f} s); a plain forward pass takes "
        f"{statistics.median(passes[1:]):.3f} s"
    )
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    result |= {"torch": torch.__version__, "network": options.network}
    result |= {"device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"}
    result |= {"images": options.images, "pixels": options.pixels, "recalibration": recalibrated, "forward": passes}
    if device.type == "cuda":
        result["peak_bytes"] = torch.cuda.max_memory_allocated(device)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "recalibration_speed.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
