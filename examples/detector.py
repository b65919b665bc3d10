"""Prune a detector that is trained by your own loop, with the interface of the detectors of torchvision.

    python examples/detector.py                                            # a small detector: 20 s on one core
    python examples/detector.py --network ssdlite320_mobilenet_v3_large    # a detector of torchvision

In training, such a detector takes images and targets and returns losses; otherwise it returns boxes, as many as it
finds. torch.export cannot follow that, so aacp prunes the parts that it can follow (backbone and head) and scores the
whole. Weights are random and images are generated: nothing is downloaded.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aacp

SIZE = 64  # height and width of the images
CLASSES = 3  # background, disc, square
STRIDE = 8  # pixels of an image per cell of the grid of the small detector
OVERLAP = 0.5  # the intersection over union from which two boxes are the same object

Objects = dict[str, Tensor]  # the boxes (left, top, right, bottom) and labels of an image; if found, also their scores


def main(
    folder: str | Path = "runs/detector", network: nn.Module | None = None, epochs: int = 10, evaluations: int = 20
) -> dict[str, float]:
    """Train, prune, train again, save and load a detector; return its F1 scores after every step.

    Args:
        folder: where the file of the pruned detector is written.
        network: a detector with the interface of torchvision's; None is the small one of this file.
        epochs: how long it is trained before it is pruned, and again afterwards.
        evaluations: the number of structures that the search tries.
    """
    torch.manual_seed(0)
    network = network or Detector()
    images, targets = draw_images(256, seed=0)
    search_images, search_targets = draw_images(64, seed=1)
    test_images, test_targets = draw_images(64, seed=2)

    train(network, images, targets, epochs)
    scores = {"trained": f1(network, test_images, test_targets)}
    found = aacp.find(
        network,
        images[:128],
        {"macs": 0.5},
        plan=aacp.Plan(evaluations=evaluations, calibration_images=128),
        score=lambda smaller: f1(smaller, search_images, search_targets),
    )
    print(*found.graph.notes, found, sep="\n")

    smaller = found.cut()
    scores["cut"] = f1(smaller, test_images, test_targets)
    train(smaller, images, targets, epochs)
    scores["trained again"] = f1(smaller, test_images, test_targets)

    file = Path(folder) / "smaller.safetensors"
    file.parent.mkdir(parents=True, exist_ok=True)
    found.save(smaller, file)
    scores["loaded"] = f1(aacp.load(file, into=network), test_images, test_targets)
    print("F1 on test images:", ", ".join(f"{step} {score:.3f}" for step, score in scores.items()))
    return scores


def train(network: nn.Module, images: Tensor, targets: list[Objects], epochs: int) -> None:
    """A plain loop: the detector computes its own losses."""
    network.train().requires_grad_(True)
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(images)).split(16):
            losses = network([images[place] for place in batch], [targets[place] for place in batch])
            optimiser.zero_grad()
            sum(losses.values()).backward()
            optimiser.step()
    network.eval()


def f1(network: nn.Module, images: Tensor, targets: list[Objects]) -> float:
    """Twice the number of objects that are found, over the number of boxes that are found and that are there."""
    network.eval()
    hits = 0
    boxes = 0
    with torch.no_grad():
        for batch in torch.arange(len(images)).split(32):
            for there, found in zip(batch.tolist(), network([images[place] for place in batch]), strict=True):
                sure = found["scores"] > 0.5
                same = overlaps(targets[there]["boxes"], found["boxes"][sure]) > OVERLAP
                same &= targets[there]["labels"][:, None] == found["labels"][sure][None]
                hits += int(same.any(1).sum())
                boxes += int(sure.sum()) + len(targets[there]["labels"])
    return 2 * hits / boxes


class Detector(nn.Module):
    """A detector with at most one object in each cell of a grid: a score, a box, and a class."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(block(3, 16, 2), block(16, 32, 2), block(32, 64, 2), block(64, 64, 1))
        self.head = nn.Sequential(block(64, 64, 1), nn.Conv2d(64, 5 + CLASSES, 1))

    def forward(self, images: list[Tensor], targets: list[Objects] | None = None) -> dict[str, Tensor] | list[Objects]:
        cells = self.head(self.backbone(torch.stack(list(images)))).permute(0, 2, 3, 1)
        if targets is not None:
            return losses_of(cells, targets)
        return [find_objects(image) for image in cells]


def block(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    layers = [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


def losses_of(cells: Tensor, targets: list[Objects]) -> dict[str, Tensor]:
    """The cell at the centre of an object is to find it."""
    number = torch.repeat_interleave(torch.arange(len(targets)), torch.tensor([len(t["labels"]) for t in targets]))
    boxes = torch.cat([target["boxes"] for target in targets]) / STRIDE
    column, row = ((boxes[:, :2] + boxes[:, 2:]) / 2).long().T
    there = torch.zeros(cells.shape[:3])
    there[number, row, column] = 1
    chosen = cells[number, row, column]
    corner = torch.stack((column, row, column, row), 1)
    return {
        "objects": 10 * F.binary_cross_entropy_with_logits(cells[..., 0], there),
        "boxes": F.smooth_l1_loss(chosen[:, 1:5], boxes - corner),
        "classes": F.cross_entropy(chosen[:, 5:], torch.cat([target["labels"] for target in targets])),
    }


def find_objects(cells: Tensor) -> Objects:
    """The objects of one image, without boxes that overlap a box of higher score."""
    row, column = torch.nonzero(cells[..., 0].sigmoid() > 0.1).T
    chosen = cells[row, column]
    scores, order = chosen[:, 0].sigmoid().sort(descending=True)
    boxes = STRIDE * (chosen[:, 1:5] + torch.stack((column, row, column, row), 1))[order]
    is_covered = (overlaps(boxes, boxes) > OVERLAP).tolist()
    kept: list[int] = []
    for place, covered in enumerate(is_covered):
        if not any(covered[better] for better in kept):
            kept.append(place)
    labels = chosen[order, 5:].argmax(1)
    return {"boxes": boxes[kept], "labels": labels[kept], "scores": scores[kept]}


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """The intersection over union of each box of the first with each of the second."""
    low = torch.maximum(first[:, None, :2], second[None, :, :2])
    high = torch.minimum(first[:, None, 2:], second[None, :, 2:])
    common = (high - low).clamp(min=0).prod(2)
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(1) for boxes in (first, second)]
    return common / (areas[0][:, None] + areas[1][None] - common)


def draw_images(count: int, seed: int) -> tuple[Tensor, list[Objects]]:
    """Noisy images of one to three discs and squares, with their boxes and labels."""
    generator = torch.Generator().manual_seed(seed)
    images = 0.3 * torch.rand(count, 3, SIZE, SIZE, generator=generator)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    targets = []
    for image in images:
        many = int(torch.randint(1, 4, (), generator=generator))
        labels = torch.randint(1, CLASSES, (many,), generator=generator)
        radii = torch.randint(6, 11, (many,), generator=generator)
        centres = torch.randint(11, SIZE - 11, (many, 2), generator=generator)
        for label, radius, (x, y) in zip(labels, radii, centres, strict=True):
            across, down = (columns - x).abs(), (rows - y).abs()
            disc = across**2 + down**2 <= radius**2
            square = torch.maximum(across, down) <= radius
            inside = disc if label == 1 else square
            image[:, inside] = 0.5 + 0.5 * torch.rand(3, 1, generator=generator)
        boxes = torch.stack([centres - radii[:, None], centres + radii[:, None]], 1).flatten(1)
        targets.append({"boxes": boxes.float(), "labels": labels})
    return images, targets


def torchvision_detector(name: str) -> nn.Module:
    """A detector of torchvision for the classes of this file, with random weights."""
    from torchvision.models import detection

    network: nn.Module = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=CLASSES)
    return network


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", help="a function of torchvision.models.detection")
    parser.add_argument("--folder", default="runs/detector")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--evaluations", type=int, default=20)
    given = parser.parse_args()
    chosen = torchvision_detector(given.network) if given.network else None
    main(given.folder, chosen, given.epochs, given.evaluations)
