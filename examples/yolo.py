"""A YOLO detector that aacp prunes and that ultralytics trains before and after.

    pip install ultralytics 'aacp[onnx]'
    python examples/yolo.py yolov8n
    python examples/yolo.py yolo11n
    python examples/yolo.py yolov8n --latency 0.2    # also at most 80 % of its time in ONNX Runtime on this CPU

The network has random weights and is trained on 200 generated pictures of shapes. It loses 40 % of its MACs, is trained
further by the trainer of ultralytics, exported, compared in ONNX Runtime, and loaded in a new process. Every step
prints a line. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

import aacp
from aacp.contrib.ultralytics import Validation, trainer_for

# ultralytics reads these when it is imported: no downloads, no installations, no tables of epochs.
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")
os.environ.setdefault("YOLO_VERBOSE", "false")

CLASSES = ("disc", "square", "diamond")
PICTURES = {"train": 200, "val": 50, "test": 50}  # training; choice of epochs and structures; the mAPs that are printed
# A program that knows nothing of aacp: it validates files, and prints their mAP and the parameters of the first.
VALIDATE = """
import json, sys
from ultralytics import YOLO
settings = json.loads(sys.argv[1])
parameters = sum(parameter.numel() for parameter in YOLO(sys.argv[2]).model.parameters())
scores = [float(YOLO(file, task="detect").val(**settings).box.map) for file in sys.argv[2:]]
print(json.dumps([parameters, *scores]))
"""


def main(
    name: str = "yolov8n",
    folder: str | Path = "runs/yolo",
    size: int = 160,
    epochs: int = 20,
    more_epochs: int = 10,
    evaluations: int = 20,
    latency: float | None = None,
) -> dict[str, float]:
    """Prune one YOLO, print what every step gives, and return the numbers.

    Args:
        name: the YAML file of the network, without its ending.
        folder: where everything is written.
        size: height and width of the pictures.
        epochs: how long the network is trained before it is pruned.
        more_epochs: how long the pruned network is trained.
        evaluations: the number of structures that the search tries.
        latency: the share of the time in ONNX Runtime that is removed at least; None limits the MACs only.
    """
    import ultralytics
    from ultralytics import YOLO

    print_line("versions", f"aacp {aacp.__version__}, ultralytics {ultralytics.__version__}, torch {torch.__version__}")
    print_line("hardware", f"{platform.machine()} CPU, {torch.get_num_threads()} thread(s)")
    folder = Path(folder).absolute() / name
    data: dict[str, Any] = {"data": str(write_shapes(folder / "shapes", size)), "imgsz": size, "batch": 8}
    data.update(device="cpu", workers=0, project=str(folder), exist_ok=True, plots=False, verbose=False)
    data.update(rect=False)  # ONNX files accept squares alone: the same pictures for all validations
    training = {**data, "seed": 0, "mosaic": 0.0}  # mosaics of four pictures need longer trainings
    testing = {**data, "split": "test", "name": "test"}
    print_line("pictures", f"{PICTURES} of {size} x {size}")

    start = time.perf_counter()
    yolo = YOLO(f"{name}.yaml")
    yolo.train(**training, epochs=epochs, name="before")
    before = float(YOLO(yolo.trainer.best).val(**testing).box.map)
    print_line("train", f"{name}.yaml for {epochs} epochs in {seconds(start)}: mAP50-95 {before:.4f}")

    start = time.perf_counter()
    validation = Validation(yolo, data)
    images = validation.images(64)
    plan = aacp.Plan(evaluations=evaluations, calibration_images=64)
    limits = {"macs": 0.4} if latency is None else {"macs": 0.4, "latency": latency}
    found = aacp.find(yolo.model.float(), images, limits, plan=plan, score=validation)
    reached = "; ".join(map(str, found.choice.limits))
    print_line("search", f"{len(found.history)} structures in {seconds(start)}: {reached}")

    smaller = found.cut()
    after_cut = Validation(yolo, testing)(found.cut())  # a second network, since a validation may change it
    whole = count_parameters(yolo.model)
    print_line("cut", f"{whole:,} parameters become {count_parameters(smaller):,}: mAP50-95 {after_cut:.4f}")

    start = time.perf_counter()
    yolo.train(**training, epochs=more_epochs, name="after", trainer=trainer_for(yolo, smaller))
    best = Path(yolo.trainer.best)
    after = float(YOLO(best).val(**testing).box.map)
    print_line("train", f"the pruned network for {more_epochs} epochs in {seconds(start)}: mAP50-95 {after:.4f}")

    file = Path(YOLO(best).export(format="onnx", imgsz=size, simplify=False))
    away = difference(YOLO(best).model.float().eval(), file, images[0][:1])
    print_line("export", f"{file.name} by ultralytics, {file.stat().st_size:,} bytes")
    print_line("compare", f"boxes and scores in ONNX Runtime are at most {away:.2g} away from torch, of {size} pixels")
    any_size = aacp.export_onnx(YOLO(best).model.float(), folder / "any_size.onnx", images[0][:1], dynamic_size=True)
    print_line("any size", str(any_size).replace(f"{folder}{os.sep}", ""))

    reloaded, again, in_runtime = run_in_new_process(VALIDATE, json.dumps(testing), best, file)
    print_line("new process", f"{reloaded:,} parameters, mAP50-95 {again:.4f}, in ONNX Runtime {in_runtime:.4f}")
    return {
        "mAP before": before,
        "mAP after the cut": after_cut,
        "mAP after training": after,
        "mAP in a new process": again,
        "mAP in ONNX Runtime": in_runtime,
        "share of MACs": found.choice.limits[0].reached / found.choice.limits[0].full,
        "parameters": count_parameters(smaller),
        "parameters in a new process": reloaded,
        "largest difference in ONNX Runtime": away,
    }


def print_line(step: str, text: str) -> None:
    print(f"{step:<13}{text}", flush=True)


def seconds(start: float) -> str:
    return f"{time.perf_counter() - start:.0f} s"


def count_parameters(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def write_shapes(folder: Path, size: int) -> Path:
    """Write pictures of one to three shapes with their boxes; return the YAML file that lists them for ultralytics."""
    generator = np.random.default_rng(0)
    for part, count in PICTURES.items():
        for kind in ("images", "labels"):
            (folder / kind / part).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            picture, boxes = draw_shapes(generator, size)
            picture.save(folder / "images" / part / f"{number:03}.png")
            (folder / "labels" / part / f"{number:03}.txt").write_text("\n".join(boxes))
    file = folder / "shapes.yaml"
    parts = {part: f"images/{part}" for part in PICTURES}
    file.write_text(json.dumps({"path": str(folder), **parts, "names": dict(enumerate(CLASSES))}))  # JSON is YAML
    return file


def draw_shapes(generator: np.random.Generator, size: int) -> tuple[Image.Image, list[str]]:
    """Return a noisy picture of one to three shapes, and their boxes as lines of a label file."""
    noise = generator.integers(0, 80, (size, size, 3), dtype=np.uint8)
    picture = Image.fromarray(noise)
    draw = ImageDraw.Draw(picture)
    boxes = []
    for _ in range(generator.integers(1, 4)):
        kind = int(generator.integers(len(CLASSES)))
        radius = float(generator.uniform(0.1, 0.2)) * size
        x, y = generator.uniform(radius, size - radius, 2)
        colour = tuple(int(value) for value in generator.integers(120, 256, 3))
        if kind == 0:
            draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)
        elif kind == 1:
            draw.rectangle((x - radius, y - radius, x + radius, y + radius), fill=colour)
        else:
            draw.polygon(((x - radius, y), (x, y - radius), (x + radius, y), (x, y + radius)), fill=colour)
        boxes.append(f"{kind} {x / size:.5f} {y / size:.5f} {2 * radius / size:.5f} {2 * radius / size:.5f}")
    return picture, boxes


def difference(network: torch.nn.Module, file: Path, images: torch.Tensor) -> float:
    """The largest difference between the predictions of a network and of its ONNX file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    (found, *_) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    with torch.no_grad():
        expected = network(images)[0]
    return float((expected - torch.from_numpy(found)).abs().max())


def run_in_new_process(code: str, *arguments: str | Path) -> Any:
    """Run code in a process that does not import aacp; return the JSON that its last line holds."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(finished.stdout.splitlines()[-1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="yolov8n")
    parser.add_argument("--folder", default="runs/yolo")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--more-epochs", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--latency", type=float, help="also remove this share of the time in ONNX Runtime")
    given = parser.parse_args()
    main(given.name, given.folder, given.size, given.epochs, given.more_epochs, given.evaluations, given.latency)
