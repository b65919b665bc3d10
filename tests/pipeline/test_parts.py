"""A detector that can only be traced in parts goes through a whole run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aacp
from graph.test_parts import Detector

pytestmark = pytest.mark.slow
PLAN = aacp.Plan(evaluations=4, calibration_images=16, recipe=aacp.Recipe(epochs=1, batch_size=8, lr=0.01))


class Dense(Detector):
    """The detector in a form that can be trained: in training mode it returns all scores."""

    def forward(self, images: Tensor) -> Tensor | list[dict[str, Tensor]]:
        if self.training:
            return self.head(list(self.backbone(images).values())).mean(2)
        return super().forward(list(images))


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(outputs, targets)


@torch.no_grad()
def found_boxes(network: nn.Module, batches: aacp.Batches) -> float:
    """Depends on what the whole detector returns, after its data-dependent code."""
    return float(sum(found["scores"].abs().sum() for images, _ in batches for found in network(images)))


@pytest.fixture
def data() -> aacp.Data:
    images = torch.rand(32, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    targets = torch.zeros(32, 3)
    return aacp.Data((images, targets), (images[:8], targets[:8]), (images[:8], targets[:8]), "shapes")


@pytest.mark.parametrize("parts", [(), ("head",)])
def test_a_detector_is_pruned_trained_and_loaded(data: aacp.Data, tmp_path: Path, parts: tuple[str, ...]) -> None:
    torch.manual_seed(0)
    model = Dense()
    plan = replace(PLAN, parts=parts)
    limits = {"macs": 0.4} if not parts else {"params": 0.05}
    pruned = aacp.prune(model, data, limits, tmp_path, plan=plan, score=found_boxes, loss=loss, device="cpu")
    assert aacp.ChannelGraph.load(tmp_path / "graph.json").parts == (parts or ("backbone", "head"))
    again = aacp.load(tmp_path, into=Dense())
    widths = [again.backbone.stem[0].out_channels, again.backbone.body[0].out_channels]
    assert (widths == [12, 16]) == bool(parts)
    assert parts == () or again.head.tower[0].out_channels < 8
    with torch.no_grad():
        for one, other in zip(again.eval()(data.test[0]), pruned.network.eval()(data.test[0]), strict=True):
            torch.testing.assert_close(one["scores"], other["scores"])


def test_without_training_it_is_recalibrated_if_repair_is_turned_off(data: aacp.Data, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Dense()
    plan = aacp.Plan(evaluations=4, calibration_images=16, recipe=None)
    with pytest.raises(aacp.InvalidOption, match=r"traced in parts \(backbone, head\).*Use reconstruction=None"):
        aacp.prune(model, data, {"macs": 0.4}, tmp_path / "repaired", plan=plan, score=found_boxes, device="cpu")
    plan = replace(plan, reconstruction=None)
    pruned = aacp.prune(model, data, {"macs": 0.4}, tmp_path / "plain", plan=plan, score=found_boxes, device="cpu")
    assert "parts of Dense" in (tmp_path / "plain/graph.json").read_text()
    assert pruned.network.backbone.out.out_channels == 8
