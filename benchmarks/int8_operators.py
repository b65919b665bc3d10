"""Where the time of ResNet20 goes in ONNX Runtime, in float32 and in int8.

    python benchmarks/int8_operators.py --out FILE

First the microseconds of each kind of operator, of the unpruned network and with every width halved. Then those of a
3x3 convolution with as many inputs as outputs on 32 x 32 pixels, by its channels. Times come from the profile of ONNX
Runtime with one thread, and are medians over 500 runs. Weights are untrained.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import aacp
from aacp.artefact.onnx_session import open_session, session_inputs
from aacp.latency.runtimes.onnx_pieces import CONVOLUTIONS, runs_in
from halving import circumstances

RUNS = 500
WIDTHS = (4, 8, 12, 16, 24, 32, 48, 64)
PRECISIONS = ("float32", "int8")
IMAGE = (1, 3, 32, 32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    found = {**circumstances(), "networks": _networks(), "convolutions": _convolutions()}
    text = json.dumps(found, indent=1)
    print(text)
    options.out.write_text(f"{text}\n")


def _networks() -> list[dict[str, Any]]:
    """The microseconds of ResNet20 by kind of operator."""
    network = aacp.build_model("resnet20").eval()
    example = torch.randn(IMAGE)
    graph = aacp.trace(network, example)
    rows = []
    for widths, structure in {"unpruned": graph.full, "halved": aacp.SearchSpace(graph, 1 / 2).smallest}.items():
        for precision in PRECISIONS:
            kinds: dict[str, float] = defaultdict(float)
            for kind, time in _operators(aacp.shrink(network, graph, structure).eval(), example, precision):
                kinds[kind] += time
            rows.append({"widths": widths, "precision": precision, "total": sum(kinds.values()), "operators": kinds})
    return rows


def _convolutions() -> list[dict[str, Any]]:
    """The microseconds of the second of two convolutions, by their channels."""
    rows = []
    for channels in WIDTHS:
        layers = [nn.Conv2d(inputs, channels, 3, padding=1) for inputs in (3, channels)]
        network = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU()).eval()
        row: dict[str, Any] = {"channels": channels}
        for precision in PRECISIONS:
            operators = _operators(network, torch.randn(IMAGE), precision)
            row[precision] = [time for kind, time in operators if kind in CONVOLUTIONS][1]
        rows.append(row)
    return rows


def _operators(network: nn.Module, example: Tensor, precision: str) -> list[tuple[str, float]]:
    """The kind and the microseconds of each operator of a run."""
    where = aacp.Deployment("onnxruntime", threads=1, precision=precision)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "network.onnx"
        where.resolved_runtime.export(network, file, example)
        session = open_session(file, where.threads, profile=Path(folder) / "profile")
        inputs = session_inputs(session, example)
        for _ in range(RUNS):
            session.run(None, inputs)
        runs = list(runs_in(json.loads(Path(session.end_profiling()).read_text())))
    medians = np.median([[operator["dur"] for operator in run] for run in runs], axis=0)
    return [(operator["args"]["op_name"], float(time)) for operator, time in zip(runs[0], medians, strict=True)]


if __name__ == "__main__":
    main()
