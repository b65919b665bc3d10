"""Claim: the public ResNet20 and ResNet56 classify 91.73 % and 93.39 % of the 10,000 CIFAR-10 test images right.

These are the published accuracies, so networks, weights and data are read correctly. One pass each, nothing random.
Versions and hardware: results/checkpoints.json.

    python benchmarks/checkpoints.py DATA resnet20=FILE resnet56=FILE [--device cuda] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import aacp
from aacp.runs.provenance import Provenance


def measured(name: str, file: str, batches: aacp.Batches) -> dict[str, Any]:
    model = aacp.build_model(name)
    aacp.load_weights(model, file)
    model = model.to(batches.device).eval()
    start = time.perf_counter()
    accuracy = aacp.accuracy(model, batches)
    return {"accuracy": accuracy, "seconds": round(time.perf_counter() - start, 2), "file": Path(file).name}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", help="folder of cifar-10-batches-bin or cifar-10-batches-py")
    parser.add_argument("checkpoints", nargs="+", metavar="MODEL=FILE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False  # float32 everywhere, for the same result on every device
    batches = aacp.Batches.of(aacp.load_data(f"cifar10:{options.data}").test, batch_size=500, device=options.device)
    rows = {}
    for checkpoint in options.checkpoints:
        name, _, file = checkpoint.partition("=")
        rows[name] = measured(name, file, batches)
        print(f"{name:10s} {rows[name]['accuracy']:.2%}  {rows[name]['seconds']:.1f} s", flush=True)
    report(rows, batches.images, options)


def report(rows: dict[str, dict[str, Any]], pictures: int, options: argparse.Namespace) -> None:
    device = torch.cuda.get_device_name(options.device) if "cuda" in options.device else "CPU"
    result = {
        **asdict(Provenance.of(" ".join(["python", *sys.argv]))),
        "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
        "device": device,
        "pictures": pictures,
        "checkpoints": rows,
    }
    print(json.dumps(result, indent=2))
    if options.out:
        (options.out / "checkpoints.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
