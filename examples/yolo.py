"""A YOLO detector that aacp prunes and that ultralytics trains before and after.

    pip install ultralytics 'aacp[onnx]'
    python examples/yolo.py yolov8n
    python examples/yolo.py yolo11n

The network has random weights and is trained on 200 generated pictures of shapes. It loses 40 % of its MACs, is trained
further by the trainer of ultralytics, exported, compared in ONNX Runtime, and loaded in a new process. Nothing is
downloaded.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

import aacp
from aacp.contrib.ultralytics import Validation, trainer_for

# ultralytics reads these when it is imported: no downloads, no installations.
os.environ.setdefault("YOLO_OFFLINE", "true")
os.environ.setdefault("YOLO_AUTOINSTALL", "false")

CLASSES = ("disc", "square", "diamond")
COUNT_PARAMETERS = (
    "import sys; from ultralytics import YOLO; y = YOLO(sys.argv[1]); print(sum(p.numel() for p in y.parameters()))"
)


def main(
    name: str = "yolov8n",
    folder: str | Path = "runs/yolo",
    size: int = 160,
    epochs: int = 20,
    more_epochs: int = 10,
    evaluations: int = 20,
) -> dict[str, float]:
    """Prune one YOLO, print what every step gives, and return the numbers.

    Args:
        name: the YAML file of the network, without its ending.
        folder: where everything is written.
        size: height and width of the pictures.
        epochs: how long the network is trained before it is pruned.
        more_epochs: how long the pruned network is trained.
        evaluations: the number of structures that the search tries.
    """
    from ultralytics import YOLO

    folder = Path(folder).absolute() / name
    data = {"data": str(write_shapes(folder / "shapes", size)), "imgsz": size, "batch": 16, "device": "cpu"}
    data.update(project=str(folder), exist_ok=True, plots=False, workers=0)

    yolo = YOLO(f"{name}.yaml")
    yolo.train(**data, epochs=epochs, name="before")
    before = float(YOLO(yolo.trainer.best).val(**data, name="val").box.map)
    validation = Validation(yolo, data)
    images = validation.images(64)
    plan = aacp.Plan(evaluations=evaluations, calibration_images=64)
    found = aacp.find(yolo.model.float(), images, {"macs": 0.4}, plan=plan, score=validation)
    smaller = found.cut()
    yolo.train(**data, epochs=more_epochs, name="after", trainer=trainer_for(yolo, smaller))
    best = Path(yolo.trainer.best)
    after = float(YOLO(best).val(**data, name="val").box.map)
    file = YOLO(best).export(format="onnx", imgsz=size, simplify=False)
    away = difference(YOLO(best).model.float().eval(), file, images[0][:1])
    any_size = aacp.export_onnx(YOLO(best).model.float(), folder / "any_size.onnx", images[0][:1], dynamic_size=True)
    reloaded = run_in_new_process(COUNT_PARAMETERS, best)

    print(found, any_size, sep="\n")
    numbers = {
        "mAP50-95 before": before,
        "mAP50-95 after the cut": found.choice.score,
        "mAP50-95 after training": after,
        "parameters": sum(parameter.numel() for parameter in smaller.parameters()),
        "parameters in a new process": int(reloaded),
        "largest difference in ONNX Runtime": away,
    }
    print(json.dumps(numbers, indent=2))
    return numbers


def write_shapes(folder: Path, size: int, count: int = 200) -> Path:
    """Write pictures of one to three shapes with their boxes, 4 of 5 for training; return the YAML file of the data.

    Args:
        folder: where to write.
        size: height and width of the pictures.
        count: the number of pictures.
    """
    generator = np.random.default_rng(0)
    for number in range(count):
        part = "val" if number % 5 == 4 else "train"
        picture, boxes = draw_shapes(generator, size)
        for kind in ("images", "labels"):
            (folder / kind / part).mkdir(parents=True, exist_ok=True)
        picture.save(folder / "images" / part / f"{number:03}.png")
        (folder / "labels" / part / f"{number:03}.txt").write_text("\n".join(boxes))
    file = folder / "shapes.yaml"
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CLASSES))
    file.write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}")
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


def difference(network: torch.nn.Module, file: str, images: torch.Tensor) -> float:
    """The largest difference between the predictions of a network and of its ONNX file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    (found, *_) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    with torch.no_grad():
        expected = network(images)[0]
    return float((expected - torch.from_numpy(found)).abs().max())


def run_in_new_process(code: str, file: Path) -> str:
    """Run code that prints one line, in a process that does not import aacp."""
    finished = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    return finished.stdout.splitlines()[-1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", default="yolov8n")
    parser.add_argument("--folder", default="runs/yolo")
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--more-epochs", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=20)
    given = parser.parse_args()
    main(given.name, given.folder, given.size, given.epochs, given.more_epochs, given.evaluations)
