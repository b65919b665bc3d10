"""Claim: files of every runtime compute what torch computes and, in int8 too, trained networks keep their accuracy.

Each network is exported twice by a runtime: in float, and in int8 with the ranges of activations found on training
images. Both files are scored on test images, and their outputs are compared with those of torch there. Calibration on
fewer images is shown beside it. With --prune-macs the network is first searched for within that limit and repaired; it
is not trained. A runtime that cannot run the network is recorded with its message. Raw numbers, versions and hardware:
results/int8_accuracy.json, int8_accuracy_imagenet.json for MobileNetV2, int8_accuracy_pruned.json, and
runtime_outputs_resnet20.json and runtime_outputs_mobilenet_v2.json for all runtimes.

    python benchmarks/int8_accuracy.py --weights resnet20=FILE --weights resnet56=FILE --data cifar10:PATH
        [--images 512 32] [--out FILE]
    python benchmarks/int8_accuracy.py --weights torchvision:mobilenet_v2=FILE --data imagefolder:PATH [--out FILE]
    python benchmarks/int8_accuracy.py --weights resnet20=FILE --data cifar10:PATH --prune-macs 0.5
        --runtimes onnxruntime openvino executorch --images 512 [--out FILE]
    python benchmarks/int8_accuracy.py --weights resnet20=FILE --data cifar10:PATH --test-images 1000
        --runtimes onnxruntime openvino executorch ncnn --images 512 [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

import aacp
from aacp.data.likeness import Likeness
from aacp.data.splits import sampled
from aacp.runs.provenance import Provenance
from aacp.zoo.data import load_data

Row: TypeAlias = dict[str, Any]

BATCH = 32  # images that are calibrated at once, as in a run
EVALUATIONS = 40  # of the search for a pruned network
ALL = 1_000_000  # test images, more than any data here have
REPAIR_IMAGES = 1024  # that batch norms are recalibrated on and weights are repaired on


def trained(name: str, weights: str) -> nn.Module:
    """A network with its weights, in evaluation mode."""
    network = aacp.build_model(name)
    aacp.load_weights(network, weights)
    return network.eval()


def pruned(network: nn.Module, name: str, data: aacp.Data, rate: float) -> tuple[nn.Module, Row]:
    """The network that a search finds within a limit on MACs, with repaired weights, and what was found."""
    plan = aacp.Plan(evaluations=EVALUATIONS, recipe=None, calibration_images=REPAIR_IMAGES, export=False)
    with tempfile.TemporaryDirectory() as folder:
        found = aacp.prune(network, data, {"macs": rate}, Path(folder) / "run", plan=plan, name=name)
    before, after = found.evaluation.before, found.evaluation.after
    about = {
        "structure": list(found.choice.counts),
        "macs_left": after.costs["macs"] / before.costs["macs"],
        "test_accuracy_unpruned": before.test,
    }
    print(about, flush=True)
    return found.network.cpu(), about


def measured(network: nn.Module, runtime_name: str, data: aacp.Data, options: argparse.Namespace) -> list[Row]:
    """What a network's files are in a runtime, in float and in int8, or why there are none."""
    test = aacp.Batches.of(sampled(data.test, options.test_images, 0), batch_size=50)
    example = next(iter(aacp.Batches.of(sampled(data.train, 1, 0), batch_size=1).inputs()))
    rows = []
    for count in [0, *options.images]:
        images = list(aacp.Batches.of(sampled(data.train, max(1, count), 0), batch_size=BATCH).inputs())
        precision = "int8" if count else "float32"
        row = {"runtime": runtime_name, "precision": precision, "calibration_images": count}
        try:
            runtime = aacp.Deployment(runtime_name, precision=precision).runtime_calibrated_on(images)
            row |= written_and_scored(network, runtime, example, test)
        except aacp.AACPError as error:
            row["failure"] = str(error)
        rows.append(row)
        print(row, flush=True)
    return rows


def written_and_scored(network: nn.Module, runtime: aacp.Runtime, example: Any, test: aacp.Batches) -> Row:
    """The size of a network's file in a runtime, its accuracy, and how far its outputs are from torch."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"network{runtime.suffix}"
        start = time.perf_counter()
        file = runtime.export(network, path, example)
        seconds = time.perf_counter() - start
        written = runtime.module_of(path, network, example)
        return {
            "runtime": f"{runtime.name} {runtime.version}",
            "test_accuracy": aacp.accuracy(written, test),
            "torch_test_accuracy": aacp.accuracy(network, test),
            **compared(written, network, test),
            "file_bytes": file.file_bytes,
            "export_seconds": round(seconds, 1),
        }


@torch.no_grad()
def compared(written: nn.Module, network: nn.Module, test: aacp.Batches) -> Row:
    """The largest difference of two networks' outputs, as a share of the largest output, and their likeness."""
    pairs = [(written(inputs), network(inputs)) for inputs in test.inputs()]
    outputs, right = (torch.cat(parts).double() for parts in zip(*pairs, strict=True))
    return {
        "relative_difference": float((outputs - right).abs().max() / right.abs().max()),
        "likeness": Likeness(network)(written, test),
        "same_class": float((outputs.argmax(1) == right.argmax(1)).double().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", action="append", required=True, help="NAME=FILE of a trained network")
    parser.add_argument("--data", required=True)
    parser.add_argument("--images", type=int, nargs="+", default=[512, 32])
    parser.add_argument("--runtimes", nargs="+", default=["onnxruntime"])
    parser.add_argument("--prune-macs", type=float, help="the share of the MACs that is removed first")
    parser.add_argument("--test-images", type=int, default=ALL, help="how many of the test images are used")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    data = load_data(options.data)
    rows = []
    for pair in options.weights:
        name, weights = pair.split("=", 1)
        network = trained(name, weights)
        about: Row = {}
        if options.prune_macs is not None:
            network, about = pruned(network, name, data, options.prune_macs)
        for runtime in options.runtimes:
            found = measured(network, runtime, data, options)
            rows += [{"network": name, **about, **row} for row in found]
    result = asdict(Provenance.of(" ".join(["python", *sys.argv])))
    if options.out:
        options.out.write_text(json.dumps({**result, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
