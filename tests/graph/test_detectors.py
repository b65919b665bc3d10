"""Detectors of torchvision are pruned by their parts; the whole computes what the masked original computes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torchvision.models import detection
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.ops import MultiScaleRoIAlign

import aacp
from graph.detector_oracles import masked, plain_operators
from sampling import sampled

IMAGES = [torch.rand(3, 64, 64, generator=torch.Generator().manual_seed(0))]
SMALL = {"min_size": 64, "max_size": 64}
pytestmark = pytest.mark.slow


def backbone(out_channels: int | list[int] = 64) -> nn.Sequential:
    layers = [nn.Conv2d(3, 12, 3, 4, 1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 16, 3, 2, 1), nn.BatchNorm2d(16)]
    network = nn.Sequential(*layers, nn.ReLU(), nn.Conv2d(16, 64, 1))
    network.out_channels = out_channels  # torchvision reads it
    return network


def anchors(count: int = 3) -> AnchorGenerator:
    return AnchorGenerator((tuple(16 * place for place in range(1, count + 1)),), ((1.0,),))


BUILD = {
    "RetinaNet": lambda: detection.RetinaNet(
        backbone(), 3, anchor_generator=anchors(), score_thresh=0.0, detections_per_img=20, **SMALL
    ),
    "FCOS": lambda: detection.FCOS(
        backbone(), 3, anchor_generator=anchors(1), score_thresh=0.0, detections_per_img=20, **SMALL
    ),
    "SSD": lambda: detection.ssd.SSD(
        backbone([64]), DefaultBoxGenerator([[2]]), (64, 64), 3, score_thresh=0.0, detections_per_img=20
    ),
    "FasterRCNN": lambda: detection.FasterRCNN(
        backbone(),
        3,
        rpn_anchor_generator=anchors(),
        box_roi_pool=MultiScaleRoIAlign(["0"], 3, 2),
        box_score_thresh=0.0,
        box_detections_per_img=20,
        **SMALL,
    ),
}
PARTS = {
    "RetinaNet": ("backbone", "head"),
    "FCOS": ("backbone", "head"),
    "SSD": ("backbone", "head"),
    "FasterRCNN": ("backbone", "rpn.head"),
}


@pytest.fixture(autouse=True, scope="module")
def _operators() -> Iterator[None]:
    with plain_operators():
        yield


@pytest.mark.parametrize("name", sampled(BUILD, 3))
def test_a_cut_detector_finds_what_the_masked_one_finds(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BUILD[name]().eval()
    for parameter in model.parameters():  # heads begin with weights near 0, for which all boxes are alike
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    graph = aacp.trace(model, IMAGES)
    assert graph.parts == PARTS[name]
    counts = [max(1, width // 2) for width in graph.full]
    smaller = aacp.shrink(model, graph, counts)
    with torch.no_grad():
        (unpruned,), (expected,), (found,) = (each(IMAGES) for each in (model, masked(model, graph, counts), smaller))
    assert len(found["scores"]) > 0
    assert unpruned["boxes"].shape != found["boxes"].shape or not torch.allclose(unpruned["boxes"], found["boxes"])
    for key, value in expected.items():
        torch.testing.assert_close(found[key], value, rtol=1e-4, atol=1e-4)
    aacp.save(smaller, graph, tmp_path / "smaller.safetensors", example=IMAGES)
    with torch.no_grad():
        (loaded,) = aacp.load(tmp_path / "smaller.safetensors", into=model)(IMAGES)
    assert all(torch.equal(loaded[key], value) for key, value in found.items())
