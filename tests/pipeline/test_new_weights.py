"""New weights for a structure: as the network's own constructor draws them, at the smaller widths, or He-normal."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import aacp
from aacp.pipeline.new_weights import chosen_init, network_with_new_weights
from aacp.pipeline.task import PruningTask
from aacp.train.new_weights import draw_weights

RECIPE = aacp.Recipe(epochs=1, batch_size=8, lr=0.1)
PLAN = aacp.Plan(recipe=RECIPE, from_scratch=True)
HERE = "pipeline.test_new_weights"


class Wide(nn.Module):
    """Layers that each draw their weights by a rule of their own, and whose widths tell the rules apart."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(1, 48, 3)
        self.out = nn.Conv2d(48, 160, 3)
        self.fixed = nn.Conv2d(160, 112, 3)
        self.deep = nn.Conv2d(112, 80, 1)
        self.scale = nn.Parameter(torch.full((80, 1, 1), 0.5))
        self.shift = nn.Parameter(torch.empty(80, 1, 1).normal_())
        self.head = nn.Linear(80, 3)
        nn.init.kaiming_normal_(self.out.weight, mode="fan_out", nonlinearity="relu")
        self.fixed.weight.data.normal_(0, 0.01)
        nn.init.xavier_uniform_(self.deep.weight)

    def forward(self, image):
        found = self.fixed(self.out(self.plain(image).relu()).relu()).relu()
        return self.head((self.deep(found) * self.scale + self.shift).mean((2, 3)))


def wide() -> nn.Module:
    return Wide()


def loaded() -> nn.Module:
    """A network whose weights do not depend on a seed, as one that loads a file."""
    network = Wide()
    with torch.no_grad():
        network.out.weight.copy_(torch.linspace(-1, 1, network.out.weight.numel()).view_as(network.out.weight))
    return network


@pytest.fixture(scope="module")
def task() -> PruningTask:
    inputs = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    part = (inputs, torch.arange(4) % 3)
    return PruningTask(Wide(), aacp.Data(part, part, part), f"{HERE}:wide", torch.device("cpu"))


def drawn(task: PruningTask, plan: aacp.Plan) -> nn.Module:
    graph = aacp.trace(task.model, task.example())
    half = aacp.Structure([group.width // 2 for group in graph.free])
    return network_with_new_weights(task, plan, aacp.Inheritance(task.model, graph, task.data.train), half)


def test_each_layer_has_the_variance_that_its_rule_gives_for_the_smaller_layer(task: PruningTask) -> None:
    network = drawn(task, PLAN)
    expected = {
        "plain": 1 / math.sqrt(3 * 9),  # torch's default: its inputs are not cut
        "out": math.sqrt(2 / (80 * 9)),  # He, by the number of outputs: 80 of 160 are left
        "fixed": 0.01,
        "deep": math.sqrt(2 / (56 + 40)),  # Xavier
        "head": 1 / math.sqrt(3 * 40),
    }
    for name, deviation in expected.items():
        found = float(network.get_submodule(name).weight.detach().std(correction=0))
        assert found == pytest.approx(deviation, rel=0.12), name
    assert float(network.scale.detach().std(correction=0)) == 0
    assert float(network.shift.detach().std()) == pytest.approx(1, rel=0.4)  # of 40 numbers, which no rule scales
    assert float(network.plain.bias.detach().abs().max()) <= 1 / math.sqrt(9)


@pytest.mark.slow
def test_weights_are_new_and_follow_the_seed_of_the_training(task: PruningTask) -> None:
    first, again, other = (drawn(task, replace(PLAN, recipe=replace(RECIPE, seed=seed), seed=9)) for seed in (1, 1, 2))
    assert torch.equal(first.out.weight, again.out.weight)
    assert not torch.equal(first.out.weight, other.out.weight)
    inherited = torch.isin(first.out.weight, task.model.out.weight)
    assert float(inherited.float().mean()) < 0.01  # equal by chance


def test_he_normal_weights_are_drawn_if_they_are_requested_or_the_network_cannot_be_built(task: PruningTask) -> None:
    assert chosen_init(task, PLAN) == "network"
    assert chosen_init(task, replace(PLAN, init="he")) == "he"
    nameless = replace(task, name=None)
    assert chosen_init(nameless, PLAN) == "he"
    with pytest.raises(aacp.InvalidOption, match=r"its name is not known.*--init he"):
        chosen_init(nameless, replace(PLAN, init="network"))
    with pytest.warns(UserWarning, match="the network itself"):  # its scale has no rule
        network = drawn(task, replace(PLAN, init="he"))
    found = float(network.fixed.weight.detach().std(correction=0))
    assert found == pytest.approx(math.sqrt(2 / (80 * 9)), rel=0.1)


def test_a_function_that_loads_weights_does_not_draw_them(task: PruningTask) -> None:
    trained = replace(task, name=f"{HERE}:loaded")
    assert chosen_init(trained, PLAN) == "he"
    with pytest.raises(aacp.InvalidOption, match=r"returns the same out\.weight with every seed"):
        chosen_init(trained, replace(PLAN, init="network"))


def test_resnet56_gets_the_deviation_of_the_papers_repositories_not_that_of_torchs_layers() -> None:
    """Convolutions of 32 channels: 0.084 in the released code; torch's own layers draw 0.034."""
    network = aacp.build_model("resnet56")
    draw_weights(network, 0)
    assert float(network.layer2[3].conv2.weight.detach().std()) == pytest.approx(0.084, rel=0.03)
