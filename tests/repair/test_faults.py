"""Bad input of repair: it is rejected with two sentences, or repaired as far as possible and said so in a note."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import aacp
from aacp.repairs.lockstep import LockStep

Kept = Mapping[str, NDArray[np.int64]]


class Small(nn.Module):
    """Convolutions with a batch norm, and a head that flattens positions: it reads images of 8 x 8 only."""

    def __init__(self, wide: int = 12) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, wide, 3, padding=1)
        self.second = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(wide)
        self.head = nn.Linear(wide * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.norm(self.second(x)))
        return self.head(nn.functional.avg_pool2d(x, 4).flatten(1))


class Case:
    """A network, its cut form, and everything that `aacp.repair` takes."""

    def __init__(self, model: nn.Module, example: Tensor, share: float = 0.5) -> None:
        self.model = model.eval()
        self.graph = aacp.trace(self.model, example)
        self.kept: Kept = {group.name: np.arange(max(1, int(group.width * share))) for group in self.graph.free}
        self.network = aacp.shrink(self.model, self.graph, self.kept).eval()

    def repair(self, images: Any) -> tuple[str, ...]:
        return tuple(aacp.repair(self.network, self.model, self.graph, self.kept, images))

    def error(self, images: Tensor) -> float:
        """The squared difference between the outputs of both networks."""
        with torch.no_grad():
            return float((self.network(images) - self.model(images)).square().mean())


def small(wide: int = 12) -> Case:
    torch.manual_seed(0)
    return Case(Small(wide), torch.randn(1, 3, 8, 8))


def images(count: int, *shape: int, seed: int = 1) -> Tensor:
    return torch.randn(count, *(shape or (3, 8, 8)), generator=torch.Generator().manual_seed(seed))


def state(network: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(network.state_dict())


def assert_same(network: nn.Module, before: dict[str, Tensor]) -> None:
    after = network.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)


def assert_finite(network: nn.Module) -> None:
    assert all(bool(torch.isfinite(tensor).all()) for tensor in network.state_dict().values())


def assert_two_sentences(error: BaseException) -> None:
    text = str(error)
    assert text.endswith(".")
    assert ". " in text


# -- rejected ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_images_that_are_not_finite_are_rejected_and_nothing_is_changed(value: float) -> None:
    case = small()
    before = state(case.network)
    broken = images(16)
    broken[3, 1, 2, 2] = value
    with pytest.raises(aacp.InvalidData, match="finite") as caught:
        case.repair(broken)
    assert_two_sentences(caught.value)
    assert_same(case.network, before)


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 16), (3, 8)], ids=["one channel", "larger", "no height"])
def test_images_of_a_shape_that_the_network_does_not_read_are_rejected(shape: tuple[int, ...]) -> None:
    case = small()
    before = state(case.network)
    with pytest.raises(aacp.InvalidData, match="shape") as caught:
        case.repair(images(4, *shape))
    assert_two_sentences(caught.value)
    assert_same(case.network, before)


def test_no_images_are_rejected() -> None:
    case = small()
    with pytest.raises(aacp.InvalidData) as caught:
        case.repair(images(0))
    assert_two_sentences(caught.value)


@pytest.mark.slow
def test_a_graph_of_another_network_is_rejected() -> None:
    case = small()
    case.graph = small(wide=16).graph
    before = state(case.network)
    with pytest.raises(aacp.AACPError) as caught:
        case.repair(images(4))
    assert_two_sentences(caught.value)
    assert_same(case.network, before)


def test_kept_units_that_the_network_does_not_have_are_rejected() -> None:
    case = small()
    case.kept = {name: index[:-1] for name, index in case.kept.items()}
    before = state(case.network)
    with pytest.raises(aacp.AACPError) as caught:
        case.repair(images(4))
    assert_two_sentences(caught.value)
    assert_same(case.network, before)


# -- repaired as far as possible --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_fewer_rows_than_columns_are_fitted_with_a_ridge_and_named_in_a_note() -> None:
    case = small(wide=32)  # the head reads 64 columns, but there is one row for each image
    few = images(8)
    before = case.error(few)
    notes = case.repair(few)
    assert any("head" in note and "8" in note for note in notes), notes
    assert_finite(case.network)
    assert case.error(few) < 0.5 * before
    assert max(float(p.detach().abs().max()) for p in case.network.parameters()) < 10


@pytest.mark.slow
def test_enough_rows_are_not_named_in_a_note() -> None:
    assert small().repair(images(64)) == ()


@pytest.mark.slow
def test_a_single_image_leaves_finite_weights() -> None:
    case = small()
    case.repair(images(1))
    assert_finite(case.network)
    assert np.isfinite(case.error(images(4, seed=2)))


@pytest.mark.slow
def test_equal_images_leave_finite_weights() -> None:
    case = small()
    case.repair(images(1).expand(16, -1, -1, -1).clone())
    assert_finite(case.network)


@pytest.mark.slow
@pytest.mark.parametrize("constant", ["zero", "positive"])
def test_constant_channels_are_no_obstacle(constant: str) -> None:
    """Two kept and two removed channels of a group are constant; the others are repaired as without them."""
    torch.manual_seed(0)
    model = Small()
    with torch.no_grad():
        model.first.weight[[0, 1, 10, 11]] = 0
        model.first.bias[[0, 1, 10, 11]] = -1 if constant == "zero" else 1
    case = Case(model, images(1), share=0.75)
    before = case.error(images(64))
    case.repair(images(64))
    assert_finite(case.network)
    assert case.error(images(64)) < 0.5 * before


def test_a_removed_constant_goes_into_the_bias_or_the_norm() -> None:
    """Where only constants are removed, repair loses nothing, at image borders neither for a kernel of one tap."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), nn.Conv2d(8, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 1))
    with torch.no_grad():
        model[0].weight[4:] = 0
        model[0].bias[4:] = 1.5
    graph = aacp.trace(model.eval(), images(1))
    kept = {"0": np.arange(4), "2": np.arange(6)}
    network = aacp.shrink(model, graph, kept).eval()
    aacp.repair(network, model, graph, kept, images(32))
    with torch.no_grad():
        torch.testing.assert_close(network(images(8, seed=2)), model(images(8, seed=2)), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_too_little_memory_uses_fewer_images_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    case = small()
    limit_memory(monkeypatch, 200_000)  # bytes: 256 images of 8 x 8 take 196,608 bytes as inputs alone
    notes = case.repair(images(256))
    assert any("memory" in note and "256" in note for note in notes), notes
    assert_finite(case.network)


@pytest.mark.slow
def test_a_failed_allocation_halves_the_images_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU too little memory is an exception, which a run on more than 20 images raises here."""
    case = small()
    run = LockStep.run

    def limited(steps: LockStep, inputs: list[Tensor]) -> list[str]:
        if len(inputs[0]) > 20:
            raise torch.OutOfMemoryError("no room")
        return run(steps, inputs)

    monkeypatch.setattr(LockStep, "run", limited)
    notes = case.repair(images(64))
    assert any("memory" in note and "64" in note and "16" in note for note in notes), notes
    assert_finite(case.network)


@pytest.mark.slow
def test_a_single_image_that_does_not_fit_is_reported_as_out_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    case = small()
    before = state(case.network)

    def failing(steps: LockStep, inputs: list[Tensor]) -> list[str]:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(LockStep, "run", failing)
    with pytest.raises(torch.OutOfMemoryError):
        case.repair(images(8))
    assert_same(case.network, before)


def limit_memory(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Let every module of repair that reads the free memory read `free` bytes."""
    modules = [module for name, module in sys.modules.items() if name.startswith("aacp.repair")]
    reading = [module for module in modules if hasattr(module, "free_memory")]
    assert reading, "no module of aacp.repair reads the free memory"
    for module in reading:
        monkeypatch.setattr(module, "free_memory", lambda *_: free)


# -- what is accepted -------------------------------------------------------------------------------------------------


def test_images_of_another_size_are_accepted_if_the_network_reads_them() -> None:
    torch.manual_seed(0)
    case = Case(
        nn.Sequential(nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Conv2d(12, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)), images(1)
    )
    larger = images(16, 3, 12, 12)
    before = case.error(larger)
    case.repair(larger)
    assert case.error(larger) < before


@pytest.mark.slow
def test_labels_in_the_data_change_nothing() -> None:
    plain, labelled = small(), small()
    pictures = images(32)
    plain.repair(pictures)
    labelled.repair((pictures, torch.zeros(32, dtype=torch.int64)))
    assert_same(labelled.network, state(plain.network))


@pytest.mark.slow
def test_a_loader_and_a_tensor_give_the_same_network() -> None:
    from_tensor, from_loader = small(), small()
    pictures = images(32)
    from_tensor.repair(pictures)
    from_loader.repair(torch.utils.data.DataLoader(pictures, batch_size=5))
    for name, value in from_tensor.network.state_dict().items():
        torch.testing.assert_close(from_loader.network.state_dict()[name], value, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_the_original_is_not_changed() -> None:
    case = small()
    case.model.train()
    before = state(case.model)
    case.repair(images(16))
    assert_same(case.model, before)
    assert case.model.training
    assert not any(module._forward_hooks for module in case.model.modules())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in case.model.parameters())


@pytest.mark.slow
def test_a_network_in_training_mode_is_repaired_as_in_evaluation_mode() -> None:
    one, other = small(), small()
    other.network.train()
    one.repair(images(32))
    other.repair(images(32))
    for name, value in one.network.state_dict().items():
        torch.testing.assert_close(other.network.state_dict()[name], value)
