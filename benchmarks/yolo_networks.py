"""YOLOs of other versions and tasks: traced, cut, run at another size, exported by ultralytics, compared with torch.

Each network is built from its YAML file with random weights and traced at 64 x 64 pixels. Every free group keeps three
quarters of its channels. The cut network must run on another size and batch and in training mode. The first output of
the ONNX file that ultralytics writes is compared with torch's. Raw output: results/yolo_networks.txt.

    python benchmarks/yolo_networks.py [NAME ...]

ultralytics must be installed; it is not a dependency of aacp. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import aacp
from aacp.contrib.ultralytics import adjust_split_sizes

# ultralytics reads these when it is imported: no downloads, no installations, no tables.
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("YOLO_VERBOSE", "false")

NAMES = (
    "yolov5n", "yolov8n-seg", "yolov8n-pose", "yolov8n-cls", "yolov8n-obb", "yolo11n-seg", "yolo11n-pose",
    "yolo11n-cls", "yolo12n", "yolov10n", "yolo26n",
)  # fmt: skip
KEPT = 0.75  # share of the channels of every free group


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES, help="of ultralytics; all by default")
    options = parser.parse_args()

    import onnxruntime
    import ultralytics

    versions = (
        f"ultralytics {ultralytics.__version__}, torch {torch.__version__}, onnxruntime {onnxruntime.__version__}"
    )
    print(f"python {platform.python_version()}, aacp {aacp.__version__}, {versions}; seed 0")
    print(f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)")
    for name in options.names:
        print(examined(name), flush=True)


def examined(name: str) -> str:
    """The row of one network."""
    from ultralytics import YOLO

    torch.manual_seed(0)
    yolo = YOLO(f"{name}.yaml")
    network = yolo.model.float().eval()
    images = torch.rand(1, 3, 64, 64)
    begun = time.process_time()
    graph = aacp.trace(network, images)
    seconds = time.process_time() - begun
    counts = [max(1, int(KEPT * width)) for width in graph.full]
    smaller = aacp.shrink(network, graph, counts)
    with torch.no_grad():
        smaller.eval()(torch.rand(2, 3, 96, 128))
        smaller.train()(torch.rand(2, 3, 64, 64))
    difference, largest = compared(yolo, smaller.eval(), images)
    cost = aacp.macs(graph)
    free = sum(group.width for group in graph.free) / sum(group.width for group in graph.groups)
    change = cost(counts) / cost(graph.full) - 1
    return (
        f"{name}: {free:.0%} of channels free, MACs {change:+.0%}, trace {seconds:.0f} s of CPU, "
        f"ONNX {difference:.1g} away from torch, largest output {largest:.3g}"
    )


def compared(yolo: Any, network: torch.nn.Module, images: torch.Tensor) -> tuple[float, float]:
    """The largest difference between torch and the file that ultralytics exports, and the largest output."""
    import onnxruntime

    adjust_split_sizes(network)
    yolo.model = network
    with tempfile.TemporaryDirectory() as folder:
        network.pt_path = str(Path(folder) / "network.pt")  # the file is written beside it
        file = yolo.export(format="onnx", imgsz=images.shape[-1], simplify=False, verbose=False)
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        found = torch.from_numpy(session.run(None, {session.get_inputs()[0].name: images.numpy()})[0])
    with torch.no_grad():
        leaves = torch.utils._pytree.tree_leaves(network(images))
    expected = next(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    return float((found - expected).abs().max()), float(expected.abs().max())


if __name__ == "__main__":
    main()
