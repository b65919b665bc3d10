"""Scores and data that mean nothing end a run with an error, before anything is written that holds them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.data.scores import accuracy
from aacp.errors import InvalidData, InvalidScore

PLAN = aacp.Plan(evaluations=1, recipe=None, export=False, calibration_images=16, method="random")
ALL_CALIBRATE = replace(PLAN, calibration_images=24)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.norm(self.conv(x)).relu().mean((2, 3)))


def images(seed: int, broken: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randn(24, 1, 6, 6, generator=generator)
    if broken is not None:
        pixels[5, 0, 0, 0] = broken
    return pixels, torch.zeros(24, dtype=torch.int64)


def data(**broken: float) -> aacp.Data:
    return aacp.Data(*(images(seed, broken.get(part)) for seed, part in enumerate(("train", "holdout", "test"))))


@pytest.mark.parametrize("broken", [math.nan, math.inf])
@pytest.mark.parametrize("part", ["train", "holdout", "test"])
def test_nan_in_the_data_is_blamed_on_that_part_of_the_data(tmp_path: Path, part: str, broken: float) -> None:
    words = {
        "train": r"The calibration images \(of the training data\) are not finite",
        "holdout": "Held-out data: the inputs hold NaN",
        "test": "Test data: the inputs hold NaN",
    }[part]
    with pytest.raises(InvalidData, match=words):
        aacp.prune(Small(), data(**{part: broken}), {"macs": 0.5}, tmp_path, plan=ALL_CALIBRATE)
    assert not list(tmp_path.rglob("evaluation.json"))


@pytest.mark.slow
@pytest.mark.parametrize("value", [math.nan, 1e308])
def test_a_score_that_is_not_finite_at_the_end_is_not_written(tmp_path: Path, value: float) -> None:
    parts = data()

    def score(network: nn.Module, batches: aacp.Batches) -> float:
        is_test = torch.equal(next(iter(batches))[0][0], parts.test[0][0])
        is_pruned = network.get_submodule("conv").out_channels < 8
        return value if is_test and is_pruned else accuracy(network, batches)

    with pytest.raises(InvalidScore, match="The score on the test data is "):
        aacp.prune(Small(), parts, {"macs": 0.5}, tmp_path, plan=PLAN, score=score)
    assert not list(tmp_path.rglob("evaluation.json"))


@pytest.mark.parametrize("fields", [{"score": "accuracy"}, {"score": 1}, {"loss": "mse"}, {"teacher": 3}], ids=str)
def test_what_is_not_a_function_or_a_network_is_rejected_before_the_run(tmp_path: Path, fields: Any) -> None:
    plan = aacp.Plan(recipe=aacp.Recipe(epochs=1, batch_size=4, lr=0.1, distillation=0.5), export=False)
    with pytest.raises(aacp.InvalidOption):
        aacp.prune(Small(), data(), {"macs": 0.5}, tmp_path / "run", plan=plan, **fields)
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("model", [Small, "resnet20", None, {}])
def test_what_is_not_a_network_is_rejected(tmp_path: Path, model: Any) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"The model is .* Give (a network|the network itself)"):
        aacp.prune(model, data(), {"macs": 0.5}, tmp_path / "run", plan=PLAN)


@pytest.mark.parametrize("plan", [{"evaluations": 3}, None, "default"])
def test_what_is_not_a_plan_is_rejected(tmp_path: Path, plan: Any) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"not a Plan. Give aacp.Plan\(...\)"):
        aacp.prune(Small(), data(), {"macs": 0.5}, tmp_path / "run", plan=plan)
    with pytest.raises(aacp.InvalidOption, match=r"not a Plan. Give aacp.Plan\(...\)"):
        aacp.sweep(Small(), data(), [{"macs": 0.5}], tmp_path / "run", plan=plan)


class Enlarging(nn.Module):
    """A network for regression with several channels, such as colours."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.conv(x).relu())


@pytest.mark.slow
def test_colours_are_not_distilled_as_if_they_were_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.functional, "log_softmax", lambda *_: pytest.fail("colours have no probabilities"))
    pixels = images(0)[0]
    parts = aacp.Data(*[(pixels, pixels.expand(-1, 3, -1, -1))] * 3)
    recipe = aacp.Recipe(epochs=1, batch_size=4, lr=0.01, distillation=0.5)
    plan = aacp.Plan(evaluations=1, recipe=recipe, export=False, calibration_images=16, method="random")
    loss = nn.functional.mse_loss

    def score(network: nn.Module, batches: aacp.Batches) -> float:
        with torch.no_grad():
            return -sum(float(loss(network(inputs), targets)) for inputs, targets in batches)

    aacp.prune(Enlarging(), parts, {"macs": 0.5}, tmp_path, plan=plan, score=score, loss=loss, device="cpu")
    trained = aacp.finetune(Enlarging(), parts.train, recipe, teacher=Enlarging(), loss=loss, device="cpu")
    assert trained.last.loss > 0


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_runs_have_gradients_though_their_caller_has_turned_them_off(tmp_path: Path, mode: Any) -> None:
    seen = []

    def looks(network: nn.Module, batches: aacp.Batches) -> float:
        seen.append(torch.is_grad_enabled() and not torch.is_inference_mode_enabled())
        return math.nan  # which ends the run

    given: Any = Small(), data()
    calls = (
        lambda: aacp.prune(*given, {"macs": 0.3}, tmp_path / "prune", plan=PLAN, score=looks),
        lambda: aacp.find(*given, {"macs": 0.3}, plan=PLAN, score=looks),
        lambda: aacp.sweep(*given, [{"macs": 0.3}], tmp_path / "sweep", plan=PLAN, score=looks),
    )
    for call in calls:
        with mode(), pytest.raises(InvalidScore):
            call()
    assert seen == [True] * 3
