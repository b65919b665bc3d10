"""Claim: quantised in int8 as `--precision int8` does it, trained networks keep their accuracy.

Each network is exported twice by ONNX Runtime's runtime of aacp: in float, and in int8 with the ranges of activations
found on training images. Both files are scored on all test images. Calibration on fewer images is shown beside it.
Raw numbers, versions and hardware: results/int8_accuracy.json, and int8_accuracy_imagenet.json for MobileNetV2.

    python benchmarks/int8_accuracy.py --weights resnet20=FILE --weights resnet56=FILE --data cifar10:PATH
        [--images 512 32] [--out FILE]
    python benchmarks/int8_accuracy.py --weights torchvision:mobilenet_v2=FILE --data imagefolder:PATH [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import aacp
from aacp.data.splits import sampled
from aacp.runs.provenance import Provenance
from aacp.zoo.data import load_data

BATCH = 32  # images that are calibrated at once, as in a run


def measured(name: str, weights: str, data: aacp.Data, counts: list[int]) -> list[dict[str, Any]]:
    """The accuracy and the size of a network's files, in float and in int8."""
    network = aacp.build_model(name)
    aacp.load_weights(network, weights)
    network.eval()
    test = aacp.Batches.of(data.test, batch_size=50)
    example = next(iter(aacp.Batches.of(sampled(data.train, 1, 0), batch_size=1).inputs()))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for count in [0, *counts]:
            images = list(aacp.Batches.of(sampled(data.train, max(1, count), 0), batch_size=BATCH).inputs())
            where = aacp.Deployment(precision="int8" if count else "float32")
            runtime = where.runtime_calibrated_on(images)
            path = Path(folder) / f"{count}{runtime.suffix}"
            start = time.perf_counter()
            file = runtime.export(network, path, example)
            seconds = time.perf_counter() - start
            accuracy = aacp.accuracy(runtime.module_of(path, network, example), test)
            rows.append(
                {
                    "network": name,
                    "precision": where.precision,
                    "calibration_images": count,
                    "test_accuracy": accuracy,
                    "file_bytes": file.file_bytes,
                    "export_seconds": round(seconds, 1),
                }
            )
            print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", action="append", required=True, help="NAME=FILE of a trained network")
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, nargs="+", default=[512, 32])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    data = load_data(options.data)
    rows = [row for pair in options.weights for row in measured(*pair.split("=", 1), data, options.images)]
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    if options.out:
        options.out.write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
