"""Importance against sums over filters written out by hand."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import aacp
from aacp.estimate.importance import unit_importance
from graph.micro_networks import MICRO, Block, conv

EXAMPLE = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
BY_NAME = {micro.name: micro for micro in MICRO}


def by_group(
    model: nn.Module, graph: aacp.ChannelGraph, importance: Any = "l1", seed: int = 0
) -> dict[str, list[float]]:
    """The scores of every group, by its name."""
    scores = unit_importance(model, graph, importance, seed)
    ends = np.cumsum([group.width for group in graph.groups])
    return {g.name: scores[end - g.width : end].tolist() for g, end in zip(graph.groups, ends, strict=True)}


def norms(weight: Tensor, order: int = 1) -> list[float]:
    """The norm of each filter, one number at a time."""
    return [sum(abs(value.item()) ** order for value in row.flatten()) ** (1 / order) for row in weight.detach()]


def close(found: list[float], expected: Any) -> None:
    assert found == pytest.approx(list(expected), rel=1e-5)


class Residual(nn.Module):
    """A stem and a branch that both make the channels of a residual stream; the branch has an inner width."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = conv(3, 6, bias=False), nn.BatchNorm2d(6)
        self.inner, self.outer = conv(6, 4), conv(4, 6)
        self.head = nn.Linear(6, 5)
        nn.init.normal_(self.stem_norm.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem_norm(self.stem(x)).relu()
        x = x + self.outer(self.inner(x).relu())
        return self.head(x.mean((2, 3)))


@pytest.fixture(scope="module")
def residual() -> tuple[Residual, aacp.ChannelGraph]:
    torch.manual_seed(0)
    model = Residual().eval()
    return model, aacp.trace(model, EXAMPLE)


@pytest.mark.parametrize(("criterion", "order"), [("l1", 1), ("l2", 2)])
def test_norms_are_summed_over_all_layers_that_make_a_channel(residual, criterion: str, order: int) -> None:
    model, graph = residual
    scores = by_group(model, graph, criterion)
    stem, outer = norms(model.stem.weight, order), norms(model.outer.weight, order)
    close(scores["stem"], [one + other for one, other in zip(stem, outer, strict=True)])
    close(scores["inner"], norms(model.inner.weight, order))


def test_batch_norm_scales_count_where_there_are_any_and_l1_elsewhere(residual) -> None:
    model, graph = residual
    scores = by_group(model, graph, "bn")
    close(scores["stem"], model.stem_norm.weight.detach().abs().tolist())
    close(scores["inner"], norms(model.inner.weight))


def test_random_importance_repeats_with_its_seed_alone(residual) -> None:
    model, graph = residual
    first = unit_importance(model, graph, "random", 1)
    torch.manual_seed(123)
    np.random.seed(123)  # noqa: NPY002 - global state must not matter
    assert np.array_equal(first, unit_importance(model, graph, "random", 1))
    assert not np.array_equal(first, unit_importance(model, graph, "random", 2))


def test_a_channel_kept_in_every_group_of_a_grouped_convolution_sums_its_filters() -> None:
    model = BY_NAME["grouped_conv"].build()
    graph = aacp.trace(model, EXAMPLE)
    (group,) = (group for group in graph.free if group.name == "body")
    weight = model.get_submodule("body").weight
    parts = np.array(norms(weight)).reshape(-1, group.width)  # one row per group of the convolution
    assert len(parts) == model.get_submodule("body").groups
    close(by_group(model, graph)["body"], parts.sum(0))


@pytest.mark.parametrize("order", [1, 2])
def test_filters_of_a_transposed_convolution_lie_in_its_second_dimension(order: int) -> None:
    model = BY_NAME["conv_transpose"].build()
    weight = model.get_submodule("body").weight
    close(by_group(model, aacp.trace(model, EXAMPLE), f"l{order}")["body"], norms(weight.transpose(0, 1), order))


@pytest.mark.parametrize("order", [1, 2])
def test_filters_of_a_grouped_transposed_convolution_lie_there_group_by_group(order: int) -> None:
    model = BY_NAME["grouped_conv_transpose"].build()
    weight = model.get_submodule("body.up").weight  # 12 inputs to 20 outputs in 4 groups: [12, 5, 3, 3]
    expected = np.zeros(5)
    for group in range(4):
        expected += norms(weight[3 * group : 3 * group + 3].transpose(0, 1), order)
    close(by_group(model, aacp.trace(model, EXAMPLE), f"l{order}")["body.up"], expected)


def test_a_depthwise_transposed_convolution_makes_the_channels_it_reads() -> None:
    model = BY_NAME["depthwise_conv_transpose"].build()
    stem, up = model.get_submodule("stem.0").weight, model.get_submodule("body.up").weight
    expected = np.array(norms(stem)) + norms(up)
    close(by_group(model, aacp.trace(model, EXAMPLE))["stem.0"], expected)


def test_a_linear_layer_has_a_filter_per_feature() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 8), nn.Flatten(), nn.Linear(4, 7), nn.ReLU(), nn.Linear(7, 3))
    close(by_group(model, aacp.trace(model, EXAMPLE))["2"], norms(model[2].weight))


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, 2])
def test_a_weight_normed_layer_counts_with_the_filters_it_uses(order: int) -> None:
    model = BY_NAME["weight_norm"].build()
    layer = model.get_submodule("body.a")
    length, direction = (getattr(layer.parametrizations.weight, f"original{i}") for i in (0, 1))
    expected = [
        abs(size.item()) * norm / euclidean
        for size, norm, euclidean in zip(length, norms(direction, order), norms(direction, 2), strict=True)
    ]
    close(by_group(model, aacp.trace(model, EXAMPLE), f"l{order}")["body.a"], expected)


def test_a_weight_normed_layer_counts_beside_a_plain_one_in_the_same_sum() -> None:
    normed = parametrizations.weight_norm(conv(3, 6))
    model = Block(
        lambda m, x: m.head((m.plain(x) + m.normed(x)).relu()), plain=conv(3, 6), normed=normed, head=conv(6, 5)
    )
    graph = aacp.trace(model, EXAMPLE)
    close(by_group(model, graph)["plain"], np.array(norms(model.plain.weight)) + norms(model.normed.weight))


@pytest.mark.slow
def test_a_layer_called_twice_and_a_weight_held_twice_count_once() -> None:
    for name, layer in (("shared_conv", "body.shared.0"), ("tied_convolutions", "body.a")):
        model = BY_NAME[name].build()
        scores = by_group(model, aacp.trace(model, EXAMPLE))
        expected = np.array(norms(model.get_submodule("stem.0").weight)) + norms(model.get_submodule(layer).weight)
        close(scores["stem.0"], expected)


def test_reading_importance_in_training_mode_does_not_step_spectral_norms() -> None:
    model = BY_NAME["spectral_norm"].build()
    graph = aacp.trace(model, EXAMPLE)
    model.train()
    before = copy.deepcopy(model.state_dict())
    unit_importance(model, graph)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("convert", [list, np.asarray, lambda v: torch.tensor(v, requires_grad=True)])
def test_a_function_of_the_users_gives_scores_by_group(residual, convert: Callable[[Any], Any]) -> None:
    model, graph = residual
    wanted = {"stem": [6.0, 1.0, 5.0, 2.0, 4.0, 3.0], "inner": [-1.0, 0.0, 1.0, 2.0]}

    def mine(given: nn.Module, of: aacp.ChannelGraph) -> dict[str, Any]:
        assert (given, of) == (model, graph)
        return {name: convert(values) for name, values in wanted.items()}

    scores = by_group(model, graph, mine)
    assert {name: scores[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"stem": [1.0] * 6}, r"0 numbers \(0 finite\) for group 'inner', which has 4"),
        ({"stem": [1.0] * 5, "inner": [1.0] * 4}, "for group 'stem', which has 6"),
        ({"stem": [1.0] * 6, "inner": [1.0, 2.0, float("nan"), 4.0]}, r"4 numbers \(3 finite\) for group 'inner'"),
        ({"stem": [1.0] * 6, "inner": [[1.0] * 4]}, "'inner'"),
        ({"stem": "abcdef", "inner": [1.0] * 4}, r"0 numbers \(0 finite\) for group 'stem'"),
        ([1.0] * 10, "returned a list"),
        (None, "returned a NoneType"),
    ],
    ids=["missing", "short", "nan", "matrix", "words", "list", "none"],
)
def test_a_function_that_does_not_score_every_channel_is_rejected(residual, given: Any, words: str) -> None:
    model, graph = residual
    with pytest.raises(aacp.InvalidOption, match=words):
        unit_importance(model, graph, lambda *_: given)


def test_an_unknown_criterion_is_rejected(residual) -> None:
    with pytest.raises(aacp.InvalidOption, match=r"^There is no importance 'l3'\. Choose from l1, l2, "):
        unit_importance(*residual, "l3")


def test_the_graph_of_another_network_is_rejected(residual) -> None:
    _, graph = residual
    other = Residual()
    other.inner, other.outer = conv(6, 5), conv(5, 6)
    with pytest.raises(aacp.GraphMismatch, match=r"inner\.weight has shape \(5, 6, 3, 3\)"):
        unit_importance(other, graph)
    with pytest.raises(aacp.GraphMismatch, match=r"stem\.weight is missing"):
        unit_importance(nn.Identity(), graph)


@pytest.mark.slow
@pytest.mark.parametrize("importance", [lambda: None, lambda model, graph: {}["gone"]])
def test_a_function_that_fails_is_named(importance: Any) -> None:
    network = aacp.build_model("digits_resnet")
    graph = aacp.trace(network, torch.randn(1, 1, 8, 8))
    images = aacp.Batches.of(torch.randn(8, 1, 8, 8))
    with pytest.raises(
        aacp.InvalidOption, match=r"The importance function failed: .*It is called with \(model, graph\)"
    ):
        aacp.Inheritance(network, graph, images, importance=importance)
