"""max_drop: the smallest network within a drop of the score."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import aacp
from aacp.cost.budget import Budget
from aacp.estimate.psae import PSAE
from aacp.pipeline.max_drop import FINENESS, MaxDropSearch
from aacp.pipeline.plan import Plan
from aacp.pipeline.pruning import PruningRun
from aacp.pipeline.request import register_request
from aacp.pipeline.searching import Outcome, Search
from aacp.pipeline.task import PruningTask
from aacp.runs.chosen import ChosenStructure
from aacp.search.history import History
from aacp.search.saving import recorded
from aacp.train.recipe import DIGITS, Recipe
from sampling import sampled

PLAN = Plan(evaluations=8, calibration_images=32, recipe=None, reconstruction=None, max_drop=0.1)
pytestmark = pytest.mark.slow


def found(model, data, budget, folder: Path, plan: Plan) -> ChosenStructure:
    subject = PruningTask(model, data, "digits_resnet", torch.device("cpu"))
    return PruningRun(subject, Budget.of(budget), plan, aacp.RunFolder(folder)).find()[1]


@pytest.fixture
def linear(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score that falls with the share of the channels that is removed."""

    def scored(self: object, network: nn.Module, *_: object) -> float:
        return sum(p.numel() for p in network.parameters()) / full

    full = sum(p.numel() for p in aacp.build_model("digits_resnet").parameters())
    monkeypatch.setattr(PSAE, "_scored", scored)
    monkeypatch.setattr(PruningTask, "score_network", scored)


@pytest.mark.usefixtures("linear")
@pytest.mark.parametrize("drop", sampled([0.5, 0.1], 2))
def test_the_largest_share_that_passes_is_found(model, data, tmp_path: Path, drop: float) -> None:
    """With the share of parameters kept as the score, a drop of a tenth allows a tenth fewer parameters."""
    plan = replace(PLAN, max_drop=drop, shrink="params")
    choice = found(model, data, {}, tmp_path, plan)
    (limit,) = choice.limits
    assert choice.score >= 1 - drop
    assert drop - 2 * FINENESS <= limit.pruning_rate <= drop


@pytest.mark.usefixtures("linear")
@pytest.mark.parametrize(
    ("recipe", "how"),
    [(None, ""), (replace(DIGITS, epochs=1), "by the estimate, with its batch norms recalibrated, ")],
    ids=["no training", "training"],
)
def test_the_score_that_the_drop_is_taken_from_is_said_first(
    model, data, tmp_path: Path, capsys, recipe: Recipe | None, how: str
) -> None:
    with aacp.show_progress():
        found(model, data, {}, tmp_path, replace(PLAN, max_drop=0.9, evaluations=2, recipe=recipe))
    first = capsys.readouterr().err.partition("1/2 evaluations")[0]
    assert f"the unpruned network has {how}1.0000 on held-out data; 0.1000 is allowed" in first


@pytest.mark.usefixtures("linear")
@pytest.mark.parametrize("recipe", [None, replace(DIGITS, epochs=1)], ids=["no training", "training"])
def test_without_training_the_delivered_network_is_judged_and_not_its_estimate(
    model, data, tmp_path: Path, monkeypatch, recipe: Recipe | None
) -> None:
    """By the estimates nothing is lost, but the networks lose as much as they have fewer parameters."""
    monkeypatch.setattr(PSAE, "_scored", lambda self, network: 1.0)
    (limit,) = found(model, data, {}, tmp_path, replace(PLAN, max_drop=0.3, shrink="params", recipe=recipe)).limits
    assert (limit.reached / limit.full >= 0.7) == (recipe is None)


@pytest.mark.usefixtures("linear")
def test_probes_without_training_mimic_as_long_as_what_is_delivered(model, data, tmp_path: Path) -> None:
    plan = replace(PLAN, max_drop=0.5, evaluations=2, mimic=2, reconstruction="auto")
    found(model, data, {}, tmp_path, plan)
    probes = list(tmp_path.glob("probes/*"))
    assert len(probes) > 1
    assert all((probe / "recovery.json").exists() and list((probe / "training").iterdir()) for probe in probes)


def test_a_score_that_falls_by_exactly_the_drop_is_within_it(model, data, tmp_path: Path, monkeypatch) -> None:
    """In floating point, 0.5006 - 0.01 is more than 0.4906."""
    monkeypatch.setattr(MaxDropSearch, "_unpruned_score", lambda self: 0.5006)
    monkeypatch.setattr(PruningTask, "score_network", lambda *_: 0.4906)
    found(model, data, {}, tmp_path, replace(PLAN, max_drop=0.01, evaluations=2))


def test_all_shares_within_reach_and_no_others_are_tried(model, data, graph, tmp_path: Path, monkeypatch) -> None:
    """Every share passes, so that the bisection ends at the largest one that the smallest structure reaches."""
    tried: list[float] = []

    def passed(self: Search) -> Outcome:
        tried.append(self.budget.limits[0].pruning_rate)
        return Outcome(ChosenStructure(graph.full.counts, 1.0, ()), History(), None)

    monkeypatch.setattr(Search, "run", passed)
    found(model, data, {}, tmp_path, replace(PLAN, shrink="params"))
    cost = aacp.params(graph)
    within_reach = 1 - float(cost(aacp.SearchSpace(graph, PLAN.pruning_step).smallest)) / cost.full
    assert within_reach - FINENESS < max(tried) <= within_reach


@pytest.mark.usefixtures("linear")
def test_other_limits_hold_as_well(model, data, tmp_path: Path) -> None:
    choice = found(model, data, {"macs": 0.3}, tmp_path, replace(PLAN, max_drop=0.4, shrink="params"))
    assert {limit.cost for limit in choice.limits} == {"macs", "params"}
    assert all(limit.holds for limit in choice.limits)


@pytest.mark.usefixtures("linear")
def test_the_history_is_that_of_all_probes(model, data, tmp_path: Path) -> None:
    found(model, data, {}, tmp_path, PLAN)
    lines = [line for path in tmp_path.glob("probes/*/history.jsonl") for line in path.read_text().splitlines()]
    probes = {tuple(json.loads(line)["counts"]) for line in lines}
    assert {candidate.structure.counts for candidate in recorded(tmp_path)} == probes


@pytest.mark.usefixtures("linear")
def test_limits_are_in_the_order_of_the_table(model, data, tmp_path: Path) -> None:
    choice = found(model, data, {"params": 0.3}, tmp_path, replace(PLAN, max_drop=0.6, shrink="macs", evaluations=2))
    assert [limit.cost for limit in choice.limits] == ["macs", "params"]


@pytest.mark.usefixtures("linear")
def test_a_share_that_no_measured_structure_reaches_is_one_that_fails(model, data, tmp_path: Path, monkeypatch) -> None:
    """Measured latencies can show that a share is out of reach after smaller ones have passed."""
    search = Search.run

    def measured(self: Search) -> Outcome:
        if self.budget.limits[0].pruning_rate > within_reach:
            raise aacp.InfeasibleBudget("params: none when measured. Loosen the limit.")
        return search(self)

    monkeypatch.setattr(Search, "run", measured)
    plan = replace(PLAN, max_drop=0.9, shrink="params", evaluations=2)
    within_reach = 0.3
    (limit,) = found(model, data, {}, tmp_path / "some", plan).limits
    assert within_reach - FINENESS < limit.pruning_rate <= within_reach
    within_reach = 0.0
    with pytest.raises(aacp.InfeasibleBudget, match="none when measured"):
        found(model, data, {}, tmp_path / "none", plan)


@pytest.mark.usefixtures("linear")
def test_channels_can_be_shrunk(model, data, tmp_path: Path) -> None:
    choice = found(model, data, {}, tmp_path, replace(PLAN, max_drop=0.5, shrink="channel_count", evaluations=2))
    (limit,) = choice.limits
    assert (limit.cost, limit.full) == ("channel_count", 16 + 16 + 16 + 32 + 32 + 64 + 64)  # stem, two per stage
    assert limit.holds
    assert 0.2 < limit.pruning_rate < 0.5  # half of the parameters are fewer than half of the channels


@pytest.mark.usefixtures("linear")
def test_no_drop_at_all_is_more_than_any_cut_keeps(model, data, tmp_path: Path) -> None:
    with pytest.raises(aacp.InfeasibleBudget, match=r"1.6 % of the macs removed .* Allow a larger drop"):
        found(model, data, {}, tmp_path, replace(PLAN, max_drop=0.0))


@pytest.mark.usefixtures("linear")
def test_a_space_in_which_no_share_is_within_reach_is_named(model, data, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("aacp.pipeline.max_drop.FINENESS", 0.25)
    frozen = ("conv1", "layer2.*", "layer3.*")  # what is left is about a twentieth of the parameters
    with pytest.raises(aacp.InfeasibleBudget, match=r"No structure of this space removes 25.0 % of the params"):
        found(model, data, {}, tmp_path, replace(PLAN, shrink="params", frozen=frozen))


def test_probes_can_be_judged_after_training(model, data, tmp_path: Path) -> None:
    """Every probe is trained, and the network within the drop is the one whose score is in its log."""
    recipe = replace(DIGITS.scaled(20), distillation=0.5)
    plan = replace(PLAN, max_drop=0.5, recipe=recipe, probe_epochs=1, evaluations=4)
    choice = found(model, data, {}, tmp_path, plan)
    logs = list(tmp_path.glob("probes/*/training/log.jsonl"))
    assert len(logs) == len(list(tmp_path.glob("probes/*"))) > 1
    assert all(len(log.read_text().splitlines()) == 1 for log in logs)
    rates = {json.loads(log.with_name("run.json").read_text())["recipe"]["lr"] for log in logs}
    assert rates == {recipe.lr / 2}  # of at most ten epochs instead of twenty
    (limit,) = choice.limits
    assert (tmp_path / "probes" / f"{limit.pruning_rate:.4f}").is_dir()
    subject = PruningTask(model, data, "digits_resnet", torch.device("cpu"))
    other = replace(plan, recipe=replace(recipe, lr=0.5))
    with pytest.raises(aacp.RunMismatch, match="probe recipe"):
        register_request(aacp.RunFolder(tmp_path), subject, Budget(), other)
    register_request(aacp.RunFolder(tmp_path), subject, Budget(), other, is_searched=True)  # the result may be trained


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_drop": -0.1}, "below 0"),
        ({"shrink": "flops"}, "no cost to shrink called 'flops'"),
        ({"probe_epochs": 2}, "there is no recipe"),
        ({"probe_epochs": -1}, "probe_epochs is -1"),
    ],
)
def test_plans_that_make_no_sense_are_rejected(change: dict, words: str) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        replace(PLAN, **change)
