"""prune: stages that leave their results, skip themselves, and come to the same end however often they are stopped."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aacp
from aacp import pipeline
from aacp.folder import RunFolder
from aacp.pipeline import prune
from aacp.plan import Plan, targets
from aacp.train.recipe import DIGITS

RECIPE = replace(DIGITS.scaled(2), distillation=0.5)
PLAN = Plan(targets({"macs": 0.5, "params": 0.33}), evaluations=14, recipe=RECIPE, calibration_images=128)


@pytest.fixture(scope="module")
def data() -> aacp.Data:
    whole = aacp.load_data("digits")
    return replace(whole, train=whole.train.subset(range(300)), test=whole.test.subset(range(100)))


@pytest.fixture(scope="module")
def model(data: aacp.Data) -> torch.nn.Module:
    torch.manual_seed(0)
    network = aacp.build_model("digits_resnet")
    aacp.fit(network, data.train, DIGITS.scaled(3))
    return network


@pytest.fixture(scope="module")
def whole(model: torch.nn.Module, data: aacp.Data, tmp_path_factory: pytest.TempPathFactory) -> pipeline.Pruned:
    return prune(model, data, PLAN, tmp_path_factory.mktemp("whole"))


def weights(folder: RunFolder) -> bytes:
    return (folder.path / "training" / "weights.safetensors").read_bytes()


def test_every_limit_is_met_by_the_network_that_is_delivered(model, whole: pipeline.Pruned) -> None:
    assert sum(p.numel() for p in whole.network.parameters()) == whole.evaluation.after.params
    assert whole.evaluation.before.params == sum(p.numel() for p in model.parameters())
    assert all(limit.holds for limit in whole.choice.limits)
    assert whole.evaluation.after.macs <= 0.5 * whole.evaluation.before.macs
    assert whole.evaluation.after.params <= 0.67 * whole.evaluation.before.params


def test_the_model_is_not_touched(model, data, tmp_path: Path) -> None:
    before, modes = copy.deepcopy(model.state_dict()), [module.training for module in model.modules()]
    prune(model, data, replace(PLAN, recipe=None, evaluations=10), tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes


def test_scores_are_those_of_the_networks_on_the_data(data, model, whole: pipeline.Pruned) -> None:
    for network, measured in ((model, whole.evaluation.before), (whole.network, whole.evaluation.after)):
        twin = copy.deepcopy(network).eval()
        assert measured.test == aacp.accuracy(twin, aacp.Batches.of(data.test))
        assert measured.holdout == aacp.accuracy(twin, aacp.Batches.of(data.holdout))


class Stopped(Exception):
    """What a test stops a run with."""


@pytest.mark.parametrize("stage", ["traced", "searched", "trained", "evaluated"])
def test_stopped_before_a_stage_the_same_call_comes_to_the_same_end(
    model, data, whole: pipeline.Pruned, stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(pipeline._Run, stage, stop)
        with pytest.raises(Stopped):
            prune(model, data, PLAN, tmp_path)
    again = prune(model, data, PLAN, tmp_path)
    assert again.choice == whole.choice
    assert again.evaluation == whole.evaluation
    assert weights(again.folder) == weights(whole.folder)


def test_a_finished_run_does_nothing_again(model, data, whole: pipeline.Pruned, monkeypatch) -> None:
    for stage in ("trace", "run_search", "prepare"):
        monkeypatch.setattr(pipeline, stage, None)
    again = prune(model, data, PLAN, whole.folder.path)
    assert again.choice == whole.choice
    for one, other in zip(again.network.parameters(), whole.network.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"evaluations": 20}, "evaluations 14"),
        ({"limits": targets({"macs": 0.4})}, "limits"),
        ({"seed": 1}, "seed 0"),
        ({"recipe": None}, "recipe"),
        ({"pruning_step": 2}, "pruning_step 0.125"),
    ],
)
def test_a_folder_of_another_question_is_refused_by_name(model, data, whole, change, words) -> None:
    with pytest.raises(aacp.RunMismatch, match=words):
        prune(model, data, replace(PLAN, **change), whole.folder.path)


def test_other_weights_are_another_question(data, whole) -> None:
    with pytest.raises(aacp.RunMismatch, match="weights"):
        prune(aacp.build_model("digits_resnet"), data, PLAN, whole.folder.path)


def test_a_folder_in_use_is_refused(model, data, tmp_path: Path) -> None:
    with RunFolder(tmp_path).lock(), pytest.raises(aacp.RunLocked):
        prune(model, data, PLAN, tmp_path)


@pytest.mark.parametrize(("limits", "words"), [((), "without limits"), (targets({"flops": 0.5}), "no cost 'flops'")])
def test_a_budget_that_says_nothing_is_refused(limits, words) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        Plan(limits)
