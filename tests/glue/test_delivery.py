"""The delivered network is the one that the plan describes: its channels, its statistics, its structure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.data.splits import split
from glue.subjects import Tiny, data, inherited

pytestmark = pytest.mark.slow

CALIBRATION = 64
PLAN = aacp.Plan(
    pruning_step=4, method="random", evaluations=4, recipe=None, importance="bn", calibration_images=CALIBRATION,
    export=False, seed=3, reconstruction=None,
)  # fmt: skip
BUDGET = {"macs": 0.5}
PRODUCERS = {"conv1": ("bn1",), "conv2": ("bn2", "bn4"), "conv3": ("bn3",)}  # batch norms of each group, by a layer
Prune = Callable[..., aacp.Pruned]


@pytest.fixture(scope="module")
def pruned_with(model: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Prune:
    """A function that prunes by the plan with some of its fields changed."""

    def pruned(**changes) -> aacp.Pruned:
        folder = tmp_path_factory.mktemp("run")
        plan = replace(PLAN, **changes)
        return aacp.prune(model, data(), BUDGET, folder, plan=plan, name="glue.subjects:tiny", device="cpu")

    return pruned


@pytest.fixture(scope="module")
def by_scales(pruned_with: Prune) -> aacp.Pruned:
    return pruned_with()


def kept_rows(pruned: aacp.Pruned, model: nn.Module, layer: str) -> list[int]:
    """The channels of a layer that were delivered, found by their biases, which nothing changes without training."""
    delivered = pruned.network.get_submodule(layer).bias
    original = model.get_submodule(layer).bias
    return [int((original == bias).nonzero()) for bias in delivered]


@pytest.mark.parametrize("layer", PRODUCERS)
def test_the_channels_with_the_largest_scales_are_delivered(by_scales: aacp.Pruned, model: nn.Module, layer) -> None:
    scales = sum(model.get_submodule(norm).weight.abs() for norm in PRODUCERS[layer])
    filters = model.get_submodule(layer).weight.abs().flatten(1).sum(1)
    rows = kept_rows(by_scales, model, layer)
    assert rows == sorted(scales.topk(len(rows)).indices.tolist())
    if 1 < len(rows) < len(scales) - 1:
        assert rows != sorted(filters.topk(len(rows)).indices.tolist())  # which another criterion would keep


@pytest.mark.parametrize("seed", [3, 4])
def test_channels_drawn_at_random_follow_the_seed_of_the_plan(pruned_with: Prune, model: nn.Module, seed: int) -> None:
    pruned = pruned_with(importance="random", seed=seed)
    counts = pruned.choice.counts
    expected = inherited(model, pruned.graph, counts, importance="random", seed=seed)
    other = inherited(model, pruned.graph, counts, importance="random", seed=0)
    for delivered, drawn in zip(pruned.network.parameters(), expected.parameters(), strict=True):
        assert torch.equal(delivered, drawn)
    pairs = zip(other.parameters(), expected.parameters(), strict=True)
    assert any(not torch.equal(one, another) for one, another in pairs)  # or this shows nothing
    assert pruned.evaluation.after.holdout == pruned.choice.score  # the search judged the same channels


def test_an_importance_function_decides_what_is_delivered(pruned_with: Prune, model: nn.Module) -> None:
    def last_first(network: nn.Module, graph: aacp.ChannelGraph) -> dict[str, Tensor]:
        return {group.name: torch.arange(group.width) for group in graph.free}

    pruned = pruned_with(importance=last_first)
    for layer in PRODUCERS:
        width = len(model.get_submodule(layer).bias)
        rows = kept_rows(pruned, model, layer)
        assert rows == list(range(width - len(rows), width))
    assert pruned.evaluation.after.holdout == pruned.choice.score


def test_batch_norms_are_delivered_with_the_statistics_of_the_calibration_images(by_scales: aacp.Pruned) -> None:
    require_statistics(by_scales.network, calibration())


def test_what_is_saved_has_the_same_statistics(by_scales: aacp.Pruned) -> None:
    require_statistics(aacp.load(by_scales.file, into=Tiny()).eval(), calibration())


def calibration() -> Tensor:
    """The training images that the plan recalibrates on: a sample with the same share of every label."""
    train = data().train
    positions = split(train.labels, CALIBRATION, PLAN.seed)[1]
    return train.inputs[positions]


def require_statistics(network: nn.Module, inputs: Tensor) -> None:
    """Every batch norm has the mean and variance of what reaches it, computed here from its inputs."""
    reached: dict[str, Tensor] = {}
    norms = {name: module for name, module in network.named_modules() if isinstance(module, nn.BatchNorm2d)}
    hooks = [
        norm.register_forward_pre_hook(lambda _, arguments, name=name: reached.update({name: arguments[0]}))
        for name, norm in norms.items()
    ]
    with torch.no_grad():
        network(inputs)
    for hook in hooks:
        hook.remove()
    assert len(reached) == 4
    for name, values in reached.items():
        variance, mean = torch.var_mean(values.double(), (0, 2, 3), correction=0)
        torch.testing.assert_close(norms[name].running_mean.double(), mean, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(norms[name].running_var.double(), variance, rtol=1e-4, atol=1e-5)


def test_untrained_the_delivered_network_scores_what_the_search_estimated(by_scales: aacp.Pruned) -> None:
    assert by_scales.evaluation.after.holdout == by_scales.choice.score


def test_the_search_estimates_what_the_public_estimator_does(by_scales: aacp.Pruned, model: nn.Module) -> None:
    inheritance = aacp.Inheritance(model, by_scales.graph, calibration(), importance="bn")
    estimate = aacp.PSAE(inheritance, data().holdout)
    lines = (by_scales.folder.path / "history.jsonl").read_text().splitlines()
    for line in map(json.loads, lines):
        assert estimate(line["counts"]) == line["score"]


def test_the_search_is_the_one_that_was_planned(by_scales: aacp.Pruned) -> None:
    state = json.loads((by_scales.folder.path / "search.json").read_text())
    assert state["method"] == type(aacp.searcher("random", aacp.SearchSpace.from_widths([8]), aacp.Budget())).__name__
    assert state["seed"] == PLAN.seed
    lines = (by_scales.folder.path / "history.jsonl").read_text().splitlines()
    assert len(lines) == PLAN.evaluations
    evaluated = [count for line in lines for count in json.loads(line)["counts"]]
    assert all(count % PLAN.pruning_step == 0 for count in evaluated)
    assert not (by_scales.training.path / "export.json").exists()


@pytest.mark.parametrize("change", [{"frozen": ("conv2", "conv4")}, {"scope": "inner"}])
def test_what_is_frozen_or_out_of_scope_is_delivered_whole(pruned_with: Prune, change: dict[str, object]) -> None:
    network = pruned_with(**change).network
    assert (network.conv2.out_channels, network.conv4.out_channels) == (16, 16)


def test_tied_groups_are_delivered_with_the_same_share(pruned_with: Prune, model: nn.Module) -> None:
    pruned = pruned_with(tie=(("conv1", "conv3"),), pruning_step=1 / 4)
    lines = (pruned.folder.path / "history.jsonl").read_text().splitlines()
    for counts in [pruned.choice.counts, *(json.loads(line)["counts"] for line in lines)]:
        assert len(counts) == 3
        assert counts[0] / 8 == counts[2] / 16
    assert (pruned.network.conv1.out_channels, pruned.network.conv3.out_channels) == pruned.choice.counts[::2]
    loaded = aacp.load(pruned.file, into=Tiny())
    assert torch.equal(loaded.conv3.weight, pruned.network.conv3.weight)
    assert pruned.folder.read_json("run.json")["tie"] == [["conv1", "conv3"]]
    assert "conv1 with conv3 tied" in (pruned.folder.path / "report.html").read_text()
    plan = replace(PLAN, tie=(("conv1", "conv3"),), pruning_step=1 / 4)
    again = aacp.prune(model, data(), BUDGET, pruned.folder.path, plan=plan, name="glue.subjects:tiny", device="cpu")
    assert again.choice == pruned.choice
    with pytest.raises(aacp.RunMismatch, match=r"tie: .*conv1.* then, none now"):
        aacp.prune(model, data(), BUDGET, pruned.folder.path, plan=replace(plan, tie=()), device="cpu")


def test_uniform_widths_leave_residual_streams_alone_unless_all_are_in_scope(pruned_with: Prune) -> None:
    inner = pruned_with(method="uniform")
    assert (inner.network.conv2.out_channels, inner.network.conv4.out_channels) == (16, 16)
    assert inner.network.conv3.out_channels < 16
    assert inner.folder.read_json("run.json")["scope"] == "inner"
    everywhere = pruned_with(method="uniform", scope="all")
    assert everywhere.network.conv2.out_channels < 16
    assert everywhere.folder.read_json("run.json")["scope"] == "all"


@pytest.mark.parametrize("limit", [0.4, "32"])
def test_a_limit_on_channels_is_met_by_the_delivered_network(model: nn.Module, tmp_path: Path, limit) -> None:
    pruned = aacp.prune(model, data(), {"channel_count": limit}, tmp_path, plan=PLAN, device="cpu")
    filters = sum(layer.out_channels for layer in pruned.network.modules() if isinstance(layer, nn.Conv2d))
    assert filters <= (0.6 * 56 if limit == 0.4 else 32)
    assert pruned.evaluation.after.costs["channel_count"] == filters
    assert pruned.evaluation.before.costs["channel_count"] == 56
    assert "Channels: " in (tmp_path / "report.html").read_text()


def test_a_sweep_delivers_by_the_same_plan(model: nn.Module, recipe: aacp.Recipe, tmp_path: Path) -> None:
    plan = replace(PLAN, importance="random", recipe=replace(recipe, distillation=0.0, lr=1e-12), evaluations=3)
    swept = aacp.sweep(model, data(), [{"macs": 0.4}, {"macs": 0.6}], tmp_path, plan=plan, train=True, device="cpu")
    for folder, choice in zip(swept.folders, swept.choices, strict=True):
        graph = aacp.ChannelGraph.from_json(folder.read_json("graph.json"))
        expected = inherited(model, graph, choice.counts, importance="random", seed=PLAN.seed)
        delivered = aacp.load(folder.path, into=Tiny())
        assert torch.equal(delivered.conv2.bias, expected.conv2.bias)


def test_the_evaluation_is_that_of_both_networks(by_scales: aacp.Pruned, model: nn.Module) -> None:
    evaluation = by_scales.evaluation
    for network, found in ((model, evaluation.before), (by_scales.network, evaluation.after)):
        assert found.test == aacp.accuracy(network, aacp.Batches.of(data().test))
        assert found.params == sum(parameter.numel() for parameter in network.parameters())
    assert evaluation.after.macs <= 0.5 * evaluation.before.macs
    assert evaluation.after.file_bytes == by_scales.file.stat().st_size < evaluation.before.file_bytes


def test_the_file_records_the_name_and_the_channels_and_the_page_is_written(
    by_scales: aacp.Pruned, model: nn.Module
) -> None:
    (cut,) = aacp.Artefact.read(by_scales.file).cuts
    place = [group.name for group in by_scales.graph.free].index("conv1")
    assert cut.channels is not None
    assert [len(channels) for channels in cut.channels] == list(by_scales.choice.counts)
    assert list(cut.channels[place]) == kept_rows(by_scales, model, "conv1")
    loaded = aacp.load(by_scales.folder.path, trust=True)  # by its name
    assert torch.equal(loaded.conv1.bias, by_scales.network.conv1.bias)
    assert "macs" in by_scales.report.read_text().lower()


@pytest.mark.parametrize(
    ("changes", "budget", "words"),
    [
        ({"seed": 4}, BUDGET, "seed: 3 then, 4 now"),
        ({"importance": "l1"}, BUDGET, "importance: bn then, l1 now"),
        ({}, {"macs": 0.4}, "macs: 50 % less then, 40 % less now"),
    ],
)
def test_another_request_does_not_resume_the_run(
    by_scales: aacp.Pruned, model: nn.Module, changes: dict[str, object], budget: dict[str, float], words: str
) -> None:
    with pytest.raises(aacp.RunMismatch, match=words):
        aacp.prune(model, data(), budget, by_scales.folder, plan=replace(PLAN, **changes), device="cpu")
