"""How long an ONNX export takes with torch's older and newer exporter, and whether both files run equally fast.

Each exporter writes every network three times in turns, and the median counts; the first export of a process, which
also imports packages, is not counted. Both files are compared with torch on batches of 1, 2 and 5, then timed in turns
in ONNX Runtime. Numbers: results/export_speed.json.

    python benchmarks/export_speed.py [--networks resnet20 torchvision:mobilenet_v2] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

import aacp
from aacp.artefact.onnx import CHECKED_BATCHES, OPSET
from aacp.artefact.onnx_check import compare
from aacp.artefact.onnx_program import write_program
from aacp.artefact.onnx_traced import write_traced
from aacp.graph.examples import FlatNetwork
from aacp.latency.timing import MedianInterval
from aacp.zoo.models import example_input
from halving import circumstances

TURNS = 3


def row_of(name: str, folder: Path) -> dict[str, Any]:
    """One network with both exporters."""
    torch.manual_seed(0)
    model = aacp.build_model(name).eval()
    example = (example_input(model),)
    flat = FlatNetwork(model, example)
    files = {"older": folder / "older.onnx", "newer": folder / "newer.onnx"}
    write: dict[str, Callable[[], object]] = {
        "older": lambda: write_traced(flat, example, files["older"], OPSET, dynamic_batch=True, strict=True),
        "newer": lambda: write_program(flat, example, files["newer"], OPSET, True, False),
    }
    seconds: dict[str, list[float]] = {"older": [], "newer": []}
    for _ in range(TURNS + 1):
        for which, call in write.items():
            begun = time.perf_counter()
            call()
            seconds[which].append(time.perf_counter() - begun)
    apart = {which: compare(flat, example, file, CHECKED_BATCHES, ()) for which, file in files.items()}
    timed = aacp.time_networks(
        {"newer": files["newer"], "older": files["older"]}, example[0], aacp.Deployment("onnxruntime", threads=1)
    )
    ratio = MedianInterval.of(np.divide(timed["older"].seconds, timed["newer"].seconds))
    return {
        "network": name,
        "seconds": {which: median(taken[1:]) for which, taken in seconds.items()},
        "difference_from_torch": {which: found.largest_difference for which, found in apart.items()},
        "largest_output": apart["older"].largest_output,
        "latency_older_by_newer": asdict(ratio),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", nargs="+", default=["resnet20", "torchvision:mobilenet_v2"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.networks:
            rows.append(row_of(name, Path(folder)))
            print(json.dumps(rows[-1]), flush=True)
    if options.out is not None:
        result = {**circumstances(), "seed": 0, "rows": rows}
        (options.out / "export_speed.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
