"""Detectors of torchvision: traced by parts, cut to half of every free group, compared as a whole, saved and loaded.

Each has random weights and gets one image. The cut detector must find what the original finds with zeros in place of
the removed channels and with group norms that leave them out (tests/graph/detector_oracles.py, which uses no code of
aacp's verifier). Raw output: results/detectors.txt.

    PYTHONPATH=tests python benchmarks/detectors.py [NAME ...]
"""

from __future__ import annotations

import argparse
import platform
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import aacp
from aacp.zoo._torchvision import import_torchvision
from graph.detector_oracles import masked, plain_operators

SIZE = 128  # pixels of the image, and of the detectors that scale their images
FIXED_SIZE = ("ssdlite320_mobilenet_v3_large", "ssd300_vgg16", "fasterrcnn_mobilenet_v3_large_320_fpn")
NAMES = (
    *FIXED_SIZE,
    "retinanet_resnet50_fpn",
    "retinanet_resnet50_fpn_v2",
    "fcos_resnet50_fpn",
    "fasterrcnn_resnet50_fpn",
    "maskrcnn_resnet50_fpn",
    "keypointrcnn_resnet50_fpn",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES, help="of torchvision; all by default")
    options = parser.parse_args()
    print(f"python {platform.python_version()}, aacp {aacp.__version__}; seed 0")
    torchvision = import_torchvision()  # also where its compiled operators do not match torch
    print(f"torch {torch.__version__}, torchvision {torchvision.__version__}")
    print(f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)")
    with plain_operators() as are_plain:
        print(f"operators of torchvision: {'plain ones in their place' if are_plain else 'its own'}", flush=True)
        for name in options.names:
            print(examined(name), flush=True)


def examined(name: str) -> str:
    """The row of one detector."""
    torch.manual_seed(0)
    detector = built(name)
    images = [torch.rand(3, SIZE, SIZE)]
    begun = time.process_time()
    graph = aacp.trace(detector, images)
    seconds = time.process_time() - begun
    counts = [max(1, width // 2) for width in graph.full]
    smaller = aacp.shrink(detector, graph, counts)
    unpruned = found_by(detector, images)
    expected = found_by(masked(detector, graph, counts), images)
    found = found_by(smaller, images)
    loaded = found_by(saved_and_loaded(detector, smaller, graph, images), images)
    is_equal = all(torch.equal(loaded[key], value) for key, value in found.items())
    cost = aacp.macs(graph)
    free = sum(group.width for group in graph.free) / sum(group.width for group in graph.groups)
    return (
        f"{name}: parts {', '.join(graph.parts)}; {free:.0%} of channels free, "
        f"MACs of the parts {cost(counts) / cost(graph.full) - 1:+.0%}, trace {seconds:.0f} s of CPU; "
        f"{len(found['boxes'])} boxes; away from the masked original: {differences(found, expected)}; "
        f"from the unpruned one: {differences(found, unpruned)}; "
        f"{'equal' if is_equal else 'DIFFERENT'} after save and load"
    )


def built(name: str) -> nn.Module:
    """A detector with random weights and statistics, which keeps 20 boxes of any score."""
    from torchvision.models import detection

    scaled: dict[str, Any] = {} if name in FIXED_SIZE else {"min_size": SIZE, "max_size": SIZE}
    classes = 2 if name.startswith("keypoint") else 3
    build = getattr(detection, name)
    detector: nn.Module = build(weights=None, weights_backbone=None, num_classes=classes, **scaled).eval()
    for key, statistic in detector.named_buffers():
        if key.endswith("running_var"):
            statistic.uniform_(0.5, 1.5)
        elif key.endswith("running_mean"):
            statistic.normal_(0, 0.1)
    choices: dict[str, Any] = {"score_thresh": 0.0, "topk_candidates": 20, "detections_per_img": 20}
    for module in detector.modules():
        for key, value in choices.items():
            if hasattr(module, key):
                setattr(module, key, value)
    return detector


def found_by(detector: nn.Module, images: list[Tensor]) -> dict[str, Tensor]:
    """Boxes, scores, labels and whatever else a detector finds in one image."""
    with torch.no_grad():
        (found,) = detector(images)
    return dict(found)


def differences(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """The largest difference of each result, as text."""
    texts = []
    for key, value in expected.items():
        if found[key].shape != value.shape:
            texts.append(f"{key} other number")
            continue
        away = float((found[key].float() - value.float()).abs().max())
        texts.append(f"{key} {away:.1g}")
    return ", ".join(texts)


def saved_and_loaded(
    detector: nn.Module, smaller: nn.Module, graph: aacp.ChannelGraph, images: list[Tensor]
) -> nn.Module:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "smaller.safetensors"
        aacp.save(smaller, graph, file, example=images)
        return aacp.load(file, into=detector)


if __name__ == "__main__":
    main()
