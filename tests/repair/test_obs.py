"""Orders by what the readers of a channel lose, and the errors of widths, compared with brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import aacp
from aacp.estimate.importance import unit_importance
from aacp.repairs import grams as grams_module
from aacp.repairs import obs
from aacp.repairs.grams import Grams
from aacp.repairs.obs import RIDGE, removal
from graph.micro_networks import Block, chain, conv
from repair.dependent_networks import build

IMAGES = torch.randn(30, 3, 8, 8, generator=torch.Generator().manual_seed(0)) + 0.3
BATCHES = aacp.Batches.of(IMAGES)


def grams_of(model: nn.Module) -> Grams:
    return Grams.of(model, aacp.trace(model, IMAGES[:2]), BATCHES)


def two_readers() -> nn.Module:
    """A stem of 5 channels that a 3 x 3 and a grouped convolution read."""

    def run(self: nn.Module, x: Tensor) -> Tensor:
        y = self.stem(x).relu()
        return torch.cat([self.one(y), self.other(y)], dim=1)

    torch.manual_seed(1)
    return Block(run, stem=conv(3, 5), one=conv(5, 4), other=conv(5, 3, 1, bias=False)).eval()


def brute_force(grams: Grams, gone: list[int]) -> float:
    """The least error of all readers without some units: direct solutions of ridge regressions towards the weights."""
    total = 0.0
    for gram in grams:
        for units, weight, covariance in zip(gram.units, obs._weighted(grams, gram), gram.covariance, strict=True):
            columns = len(covariance)
            metric = covariance + RIDGE * covariance.diagonal().mean() * torch.eye(columns, dtype=torch.float64)
            stay = ~torch.isin(units, torch.tensor(gone))
            # min over A of |(W - A P) M (W - A P)'|, where P selects the columns that stay
            best = torch.linalg.solve(metric[stay][:, stay], metric[stay] @ weight.T)
            lost = weight.T.clone()
            lost[stay] -= best
            total += float((lost * (metric @ lost)).sum())
    return total


@pytest.mark.parametrize("channel_form", [False, True])
def test_the_error_of_each_width_is_that_of_the_least_squares(monkeypatch, channel_form: bool) -> None:
    if channel_form:
        monkeypatch.setattr(grams_module, "MAX_COLUMNS", 40)
    grams = grams_of(two_readers())
    (group,) = grams.graph.free
    found = removal(grams, group)
    for count in range(group.width):
        expected = brute_force(grams, found.order[:count].tolist())
        assert found.errors[count] == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.slow
def test_the_first_removal_is_the_cheapest_and_later_ones_are_near_the_best_subset() -> None:
    grams = grams_of(two_readers())
    (group,) = grams.graph.free
    found = removal(grams, group)
    for count in (1, 2, 3):
        best = min(brute_force(grams, list(subset)) for subset in combinations(range(5), count))
        assert found.errors[count] == pytest.approx(best, rel=1e-6 if count == 1 else 0.3)


def test_a_given_order_has_the_errors_of_that_order() -> None:
    grams = grams_of(two_readers())
    (group,) = grams.graph.free
    found = removal(grams, group, np.array([3, 0, 4, 1, 2]))
    assert found.errors[2] == pytest.approx(brute_force(grams, [3, 0]), rel=1e-6)
    assert found.errors[4] == pytest.approx(brute_force(grams, [3, 0, 4, 1]), rel=1e-6)


@pytest.mark.slow
def test_removing_several_units_at_a_time_adds_the_same_errors(monkeypatch) -> None:
    grams = grams_of(two_readers())
    (group,) = grams.graph.free
    monkeypatch.setattr(obs, "MAX_REMOVALS", 2)  # three units in each step
    found = removal(grams, group)
    for count in range(6):
        expected = brute_force(grams, found.order[:count].tolist())
        assert found.errors[count] == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("importance", ["activation", "obs"])
def test_a_channel_that_nobody_reads_is_least_important(importance: str) -> None:
    model = two_readers()
    with torch.no_grad():
        model.one.weight[:, 3] = 0
        model.other.weight[:, 3] = 0
        model.stem.weight[3] *= 100  # l1 would keep it
    graph = aacp.trace(model, IMAGES[:2])
    scores = unit_importance(model, graph, importance, calibration=BATCHES)
    assert scores.argmin() == 3
    assert unit_importance(model, graph, "l1").argmax() == 3


@pytest.mark.slow
def test_obs_keeps_one_channel_of_each_dependent_pair() -> None:
    """Channels 4 to 7 are multiples of channels 0 to 3; activation keeps both channels of the loudest pair."""
    model = build("dense")
    with torch.no_grad():
        model.reader.weight[:, [3, 7]] *= 3
    graph = aacp.trace(model, IMAGES[:2])
    group = next(group for group in graph.free if "stem" in graph.producer_names(group))
    here = graph.unit_groups == graph.groups.index(group)
    by_obs = np.argsort(unit_importance(model, graph, "obs", calibration=BATCHES)[here])
    by_activation = np.argsort(unit_importance(model, graph, "activation", calibration=BATCHES)[here])
    assert {3, 7} < set(by_activation[-4:].tolist())
    assert set(by_obs[-4:] % 4) == {0, 1, 2, 3}


@pytest.mark.slow
def test_grouped_products_and_frozen_groups_are_ordered() -> None:
    model = build("grouped")
    graph = aacp.trace(model, IMAGES[:2])
    frozen = graph.freeze({graph.free[0].name: "test"})
    for each in (graph, frozen):
        scores = unit_importance(model, each, "obs", calibration=BATCHES)
        assert np.isfinite(scores).all()


def test_a_group_that_no_product_reads_is_ordered_by_l1_with_a_note() -> None:
    torch.manual_seed(0)

    def run(self: nn.Module, x: Tensor) -> Tensor:
        return self.stem(x).relu().amax(dim=1)

    model = Block(run, stem=conv(3, 6)).eval()
    graph = aacp.trace(model, IMAGES[:2])
    grams = Grams.of(model, graph, BATCHES)
    for importance in ("activation", "obs"):
        scores = unit_importance(model, graph, importance, grams=grams)
        assert np.array_equal(scores, unit_importance(model, graph, "l1"))
    assert grams.notes == ["Nothing that repair knows reads the channels of stem: they are ordered by l1."]


def test_images_are_required() -> None:
    model = two_readers()
    with pytest.raises(aacp.InvalidOption, match="calibration images"):
        unit_importance(model, aacp.trace(model, IMAGES[:2]), "obs")


# -- sensitivities -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_sensitivities_are_the_squared_jacobian_of_the_outputs() -> None:
    """The head is linear: an error in channel c of its input changes output k by the weight between them."""
    torch.manual_seed(0)
    model = chain(stem=conv(3, 4), reader=conv(4, 3, 1), head=conv(3, 2, 1)).eval()
    grams = grams_of(model)
    with torch.no_grad():
        outputs = model(IMAGES).double()
    variance = (outputs - outputs.mean(dim=0)).square().sum() / len(outputs)
    expected = 64 * model.head.weight.detach().double().square().sum(dim=0).flatten() / variance
    assert torch.allclose(grams.sensitivities["reader.weight"][0], expected, rtol=0.15)  # random signs
    assert torch.allclose(grams.sensitivities["head.weight"], torch.full((1, 2), 64.0).double() / variance)


def test_images_of_several_sizes_have_sensitivities_with_dense_outputs() -> None:
    """Outputs of both sizes have the same statistics at each position: so has each size alone."""
    torch.manual_seed(0)
    model = chain(stem=conv(3, 4, 1), head=conv(4, 2, 1)).eval()
    graph = aacp.trace(model, IMAGES[:2])
    large = torch.randn(512, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    small = large[:, :, :4, :4].contiguous()
    both = Grams.of(model, graph, aacp.Batches.of([large[:64], small[64:128]]))
    one = Grams.of(model, graph, aacp.Batches.of(large[:128]))
    found, expected = both.sensitivities, one.sensitivities
    assert not both.notes
    assert found.keys() == expected.keys() == {"stem.weight", "head.weight"}
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=0.1)


def test_a_result_without_images_does_not_change_sensitivities() -> None:
    def run(self: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.reader(self.stem(x).relu())
        return y.mean(), y

    def build_layers() -> dict[str, nn.Module]:
        torch.manual_seed(0)
        return {"stem": conv(3, 4), "reader": conv(4, 3, 1)}

    found = grams_of(Block(run, **build_layers()).eval()).sensitivities
    expected = grams_of(Block(lambda self, x: run(self, x)[1], **build_layers()).eval()).sensitivities
    assert found.keys() == expected.keys() == {"stem.weight", "reader.weight"}
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_network_that_returns_classes_has_no_sensitivities() -> None:
    torch.manual_seed(0)
    model = Block(lambda self, x: self.reader(self.stem(x).relu()).argmax(1), stem=conv(3, 4), reader=conv(4, 3, 1))
    grams = grams_of(model.eval())
    assert grams.sensitivities == {}
    assert np.isfinite(unit_importance(model, grams.graph, "obs", grams=grams)).all()


def test_an_operator_without_gradients_leaves_errors_relative(monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("derivative is not implemented")

    monkeypatch.setattr(grams_module, "sensitivities", fail)
    grams = grams_of(two_readers())
    (group,) = grams.graph.free
    assert removal(grams, group).errors[-1] == pytest.approx(2.0, rel=0.01)  # each of two readers loses everything
    assert grams.notes == [
        "Errors are relative to the output of each layer: no gradients, RuntimeError: derivative is not implemented."
    ]
