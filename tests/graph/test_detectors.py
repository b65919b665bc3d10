"""Detectors of torchvision are pruned by their parts; the whole computes what the masked original computes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
import torch._dynamo
from torch import Tensor, nn
from torchvision.models import detection
from torchvision.models.detection.anchor_utils import AnchorGenerator, DefaultBoxGenerator
from torchvision.ops import MultiScaleRoIAlign

import aacp
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
    """A plain `nms`, and `roi_align` that is not compiled, where the build of torchvision does not match torch's."""
    library = torch.library.Library("torchvision", "IMPL")
    with ExitStack() as changes:
        try:
            torch.ops.torchvision.nms(torch.zeros(0, 4), torch.zeros(0), 0.5)
        except NotImplementedError:
            library.impl("nms", plain_nms, "CPU")
            patch = changes.enter_context(pytest.MonkeyPatch.context())
            patch.setattr("torchvision.ops.boxes._assert_has_ops", lambda: None)
            changes.enter_context(torch._dynamo.config.patch(disable=True))
        yield


def plain_nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    left = scores.argsort(descending=True, stable=True)
    kept = []
    while left.numel():
        best = left[0]
        kept.append(best)
        low = torch.maximum(boxes[left, :2], boxes[best, :2])
        high = torch.minimum(boxes[left, 2:], boxes[best, 2:])
        common = (high - low).clamp(min=0).prod(1)
        overlap = common / (areas[left] + areas[best] - common)
        left = left[(overlap <= threshold) & (left != best)]
    return torch.stack(kept) if kept else torch.zeros(0, dtype=torch.long)


class PresentGroupNorm(nn.Module):
    """A group norm whose statistics leave out the channels with weight 0."""

    def __init__(self, norm: nn.GroupNorm) -> None:
        super().__init__()
        self.norm = norm

    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        present = (norm.weight != 0).view(norm.num_groups, -1, 1)
        grouped = x.reshape(len(x), norm.num_groups, -1, x.shape[2] * x.shape[3])
        count = present.sum((1, 2)) * grouped.shape[3]
        mean = (grouped * present).sum((2, 3)) / count
        centred = grouped - mean[..., None, None]
        variance = (centred.square() * present).sum((2, 3)) / count
        normed = centred / (variance[..., None, None] + norm.eps).sqrt()
        return normed.reshape(x.shape) * norm.weight[:, None, None] + norm.bias[:, None, None]


def masked(model: nn.Module, graph: aacp.ChannelGraph, counts: list[int]) -> nn.Module:
    """The original with zeros in place of removed channels: all activations here are 0 for 0."""
    twin = copy.deepcopy(model)
    values = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
    stays = graph.kept_units(counts)
    for tensor in graph.tensors:
        for dim, lane in enumerate(tensor.lanes):
            if lane is not None:
                units = graph.lanes[lane]
                gone = np.flatnonzero((units >= 0) & ~stays[np.maximum(units, 0)])
                values[tensor.name].data.index_fill_(dim, torch.from_numpy(gone), 0)
    for module in list(twin.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.GroupNorm):
                setattr(module, name, PresentGroupNorm(child))
    return twin


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
