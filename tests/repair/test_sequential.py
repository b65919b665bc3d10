"""Repair brings back what the kept channels can still compute, in every construct."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import aacp
from aacp.repairs import sequential
from sampling import sampled

HALF = [0, 1, 2, 3]
WIDE = 8


def make_dependent(layer: nn.Module, dim: int = 0, parts: int = 1) -> None:
    """Let the second half of a layer's outputs, in each part of them, be combinations of the first half."""
    with torch.no_grad():
        for tensor, along in ((layer.weight, dim), (layer.bias, 0)):
            if tensor is None:
                continue
            rows = tensor.movedim(along, 0)
            size = len(rows) // parts
            for start in range(0, len(rows), size):
                kept = rows[start : start + size // 2].flatten(1) if rows.dim() > 1 else rows[start : start + size // 2]
                mixing = torch.randn(size // 2, size // 2, generator=torch.Generator().manual_seed(start)) / 2
                rows[start + size // 2 : start + size] = (mixing @ kept).reshape(rows[start : start + size // 2].shape)


class Branches(nn.Module):
    """Several consumers of one group, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDE, 3, padding=1)
        self.wide = nn.Conv2d(WIDE, 5, 3, padding=1)
        self.small = nn.Conv2d(WIDE, 4, 1)
        self.head = nn.Conv2d(17, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head(torch.cat([self.wide(x), x, self.small(x)], 1))


class Squeeze(nn.Module):
    """Squeeze-and-excite: linear layers on the means of the channels gate other channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDE, 3, padding=1)
        self.body = nn.Conv2d(WIDE, 6, 3, padding=1)
        self.squeeze = nn.Linear(WIDE, 4)
        self.excite = nn.Linear(4, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(x.mean((2, 3))))))
        return self.body(x) * gate[:, :, None, None]


class Attention(nn.Module):
    """Attention over positions, with projections by linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDE, 3, padding=1)
        self.query = nn.Linear(WIDE, 4)
        self.key = nn.Linear(WIDE, 4)
        self.content = nn.Linear(WIDE, 6)
        self.out = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        weights = torch.softmax(self.query(tokens) @ self.key(tokens).transpose(1, 2), -1)
        return self.out(weights @ self.content(tokens))


class Flat(nn.Module):
    """A linear layer behind flattened feature maps."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDE, 3, stride=2)
        self.head = nn.Linear(WIDE * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.adaptive_avg_pool2d(self.stem(x), 2).flatten(1))


def chain(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(*layers)


def normed(layer: nn.Module, norm: nn.Module) -> nn.Module:
    """A layer without bias in front of a batch norm that has seen other data."""
    norm.running_mean.uniform_(-0.5, 0.5)
    norm.running_var.uniform_(0.5, 2.0)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.uniform_(norm.bias, -0.5, 0.5)
    return nn.Sequential(layer, norm)


Case = tuple[Callable[[], nn.Module], tuple[int, ...], str, int]  # network, image, layer that is halved, its parts
CASES: dict[str, Case] = {
    "conv1d": (lambda: chain(nn.Conv1d(3, WIDE, 3), nn.Conv1d(WIDE, 5, 3, padding=1)), (3, 16), "0", 1),
    "conv2d": (lambda: chain(nn.Conv2d(3, WIDE, 3), nn.Conv2d(WIDE, 5, 3, stride=2)), (3, 9, 9), "0", 1),
    "conv3d": (lambda: chain(nn.Conv3d(3, WIDE, 2), nn.Conv3d(WIDE, 5, 2)), (3, 5, 6, 5), "0", 1),
    "grouped": (
        lambda: chain(nn.Conv2d(3, WIDE, 3), nn.Conv2d(WIDE, 6, 3, groups=2), nn.Conv2d(6, 4, 1)), (3, 9, 9), "0", 2
    ),
    "depthwise": (
        lambda: chain(nn.Conv2d(3, WIDE, 1), nn.Conv2d(WIDE, WIDE, 1, groups=WIDE), nn.Conv2d(WIDE, 4, 3)),
        (3, 9, 9), "0", 1,
    ),
    "transposed": (lambda: chain(nn.Conv2d(3, WIDE, 1), nn.ConvTranspose2d(WIDE, 4, 3, stride=2)), (3, 6, 6), "0", 1),
    "transposed1d": (lambda: chain(nn.Conv1d(3, WIDE, 1), nn.ConvTranspose1d(WIDE, 4, 4, stride=2)), (3, 9), "0", 1),
    "transposed3d": (lambda: chain(nn.Conv3d(3, WIDE, 1), nn.ConvTranspose3d(WIDE, 4, 2)), (3, 4, 4, 4), "0", 1),
    "grouped_transposed": (
        lambda: chain(nn.Conv2d(3, WIDE, 1), nn.ConvTranspose2d(WIDE, 6, 2, stride=2, groups=2), nn.Conv2d(6, 4, 1)),
        (3, 6, 6), "0", 2,
    ),
    "no_bias": (lambda: chain(nn.Conv2d(3, WIDE, 3, bias=False), nn.Conv2d(WIDE, 5, 3, bias=False)), (3, 8, 8), "0", 1),
    "batch_norm": (
        lambda: chain(
            nn.Conv2d(3, WIDE, 3), normed(nn.Conv2d(WIDE, 5, 3, bias=False), nn.BatchNorm2d(5)), nn.ReLU(),
            nn.Conv2d(5, 4, 1),
        ),
        (3, 9, 9), "0", 1,
    ),
    "linear": (Flat, (3, 11, 11), "stem", 1),
    "concatenation": (Branches, (3, 8, 8), "stem", 1),
    "squeeze_excite": (Squeeze, (3, 8, 8), "stem", 1),
    "attention": (Attention, (3, 6, 6), "stem", 1),
}  # fmt: skip


def images(shape: Sequence[int], count: int = 64, seed: int = 1) -> Tensor:
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def error(network: nn.Module, model: nn.Module, x: Tensor) -> float:
    """The largest difference of the outputs as a share of how much the original's vary."""
    with torch.no_grad():
        expected = model(x)
        return float((network(x) - expected).abs().max() / expected.std())


@pytest.mark.parametrize("name", sampled(CASES, 4, pytest.mark.slow))
def test_channels_that_are_combinations_of_kept_ones_are_repaired_exactly(name: str) -> None:
    build, shape, halved, parts = CASES[name]
    for dtype in (torch.float32, torch.float64):
        torch.manual_seed(0)
        model = build().eval()
        make_dependent(model.get_submodule(halved), parts=parts)
        model.to(dtype)
        graph = aacp.trace(model, images(shape, 2).to(dtype))
        width = next(group.width for group in graph.free if group.name == halved)
        kept = {halved: np.arange(width // 2)}
        network = aacp.shrink(model, graph, kept)
        unseen = images(shape, 8, seed=2).to(dtype)
        assert error(network, model, unseen) > 0.05
        assert aacp.repair(network, model, graph, kept, images(shape).to(dtype)) == ()
        assert error(network, model, unseen) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("form", ["module", "exported"])
def test_both_forms_of_a_cut_network_are_repaired(form: str) -> None:
    build, shape, halved, _ = CASES["batch_norm"]
    torch.manual_seed(0)
    model = build().eval()
    make_dependent(model.get_submodule(halved))
    example = images(shape, 8, seed=2)
    graph = aacp.trace(model, example, form=form)
    network = aacp.shrink(model, graph, {"0": HALF}, example=example)
    aacp.repair(network, model, graph, {"0": np.array(HALF)}, images(shape))
    assert error(network, model, example) < 1e-4


def test_a_weight_that_is_used_twice_is_left_as_inherited_and_named() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, WIDE, 1)
            self.body = nn.Conv2d(WIDE, WIDE, 3, padding=1)
            self.head = nn.Conv2d(WIDE, 4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.body(self.body(self.stem(x))))

    torch.manual_seed(0)
    model = Twice().eval()
    graph = aacp.trace(model, images((3, 8, 8), 1))
    kept = {graph.free[0].name: np.arange(4)}
    network = aacp.shrink(model, graph, kept)
    before = copy.deepcopy(network)
    notes = aacp.repair(network, model, graph, kept, images((3, 8, 8)))
    assert any("body.weight is used several times" in note for note in notes)
    assert torch.equal(network.body.weight, before.body.weight)
    unseen = images((3, 8, 8), 8, seed=2)
    assert error(network, model, unseen) < error(before, model, unseen)


def test_nothing_is_changed_if_nothing_is_removed() -> None:
    torch.manual_seed(0)
    model = CASES["batch_norm"][0]().eval()
    graph = aacp.trace(model, images((3, 9, 9), 1))
    network = aacp.shrink(model, graph, graph.full)
    assert aacp.repair(network, model, graph, {}, images((3, 9, 9))) == ()
    for name, value in model.state_dict().items():
        assert torch.equal(network.state_dict()[name], value)


def test_layers_before_the_first_removed_channel_are_not_changed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1)).eval()
    graph = aacp.trace(model, images((3, 9, 9), 1))
    kept = {"2": np.arange(4)}
    network = aacp.shrink(model, graph, kept)
    aacp.repair(network, model, graph, kept, images((3, 9, 9)))
    assert torch.equal(network[0].weight, model[0].weight)
    assert torch.equal(network[2].weight, model[2].weight[:4])
    assert not torch.equal(network[4].weight, model[4].weight[:, :4])


# -- batch norms ------------------------------------------------------------------------------------------------------


class Residual(nn.Module):
    """A stem, residual blocks, a head."""

    def __init__(self, blocks: int = 3, width: int = 16) -> None:
        super().__init__()
        self.stem = normed(nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))
        self.inner = nn.ModuleList(
            normed(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)) for _ in range(blocks)
        )
        self.outer = nn.ModuleList(
            normed(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)) for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        for inner, outer in zip(self.inner, self.outer, strict=True):
            x = torch.relu(x + outer(torch.relu(inner(x))))
        return self.head(x.mean((2, 3)))


def residual_case() -> tuple[nn.Module, aacp.ChannelGraph, dict[str, np.ndarray], nn.Module]:
    torch.manual_seed(0)
    model = Residual().eval()
    aacp.recalibrate(model, images((3, 8, 8)))
    graph = aacp.trace(model, images((3, 8, 8), 1))
    kept = {group.name: np.arange(group.width * 3 // 4) for group in graph.free}
    return model, graph, kept, aacp.shrink(model, graph, kept)


@pytest.mark.slow
def test_batch_norms_get_the_statistics_of_what_arrives() -> None:
    model, graph, kept, network = residual_case()
    pictures = images((3, 8, 8))
    aacp.repair(network, model, graph, kept, pictures)
    with torch.no_grad():
        evaluated = network.eval()(pictures)
        trained = network.train()(pictures)
    torch.testing.assert_close(trained, evaluated, atol=1e-4, rtol=1e-4)


def test_restated_batch_norms_of_a_network_in_double_precision_compute_the_same() -> None:
    torch.manual_seed(0)
    model = CASES["batch_norm"][0]().eval()
    make_dependent(model.get_submodule("0"))
    model.double()
    graph = aacp.trace(model, images((3, 9, 9), 1).double())
    kept = {"0": np.array(HALF)}
    network = aacp.shrink(model, graph, kept)
    aacp.repair(network, model, graph, kept, images((3, 9, 9)).double())
    assert error(network, model, images((3, 9, 9), 8, seed=2).double()) < 1e-4


def test_a_constant_that_is_removed_goes_into_the_batch_norm_behind_a_layer_without_bias() -> None:
    torch.manual_seed(0)
    # Nothing follows the batch norm, so that no later layer can make up for a wrong constant.
    last = normed(nn.Conv2d(8, 6, 1, bias=False), nn.BatchNorm2d(6))
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), last).eval()
    with torch.no_grad():
        model[0].weight[4:] = 0
        model[0].bias[4:] = 1.5
    graph = aacp.trace(model, images((3, 6, 6), 1))
    kept = {"0": np.array(HALF)}
    network = aacp.shrink(model, graph, kept)
    unseen = images((3, 6, 6), 8, seed=2)
    assert error(network, model, unseen) > 0.05
    aacp.repair(network, model, graph, kept, images((3, 6, 6)))
    assert error(network, model, unseen) < 1e-4


def test_a_batch_norm_without_affine_parameters_keeps_its_statistics_and_is_named() -> None:
    torch.manual_seed(0)
    norm = nn.BatchNorm2d(6, affine=False)
    norm.running_var.fill_(2.0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 3), norm, nn.ReLU(), nn.Conv2d(6, 4, 1)).eval()
    graph = aacp.trace(model, images((3, 9, 9), 1))
    kept = {"0": np.array(HALF)}
    network = aacp.shrink(model, graph, kept)
    notes = aacp.repair(network, model, graph, kept, images((3, 9, 9)))
    assert [note for note in notes if note.startswith("2 keeps its running statistics")]
    assert torch.equal(network[2].running_var, norm.running_var)


# -- residual streams -------------------------------------------------------------------------------------------------


class Sum(nn.Module):
    """Two branches that are added: the second reads channels that equal those which the first loses.

    Only a layer that aims at the sum can bring them back. `order` says which branch the code computes first.
    """

    def __init__(self, order: str, scaled: bool) -> None:
        super().__init__()
        self.lossy = nn.Conv2d(3, WIDE, 1)
        self.whole = nn.Conv2d(3, WIDE, 1)
        self.first = nn.Conv2d(WIDE, 5, 1)
        self.second = nn.Conv2d(WIDE, 5, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(5)
        self.scale = nn.Parameter(torch.rand(5, 1, 1) + 0.5)
        self.head = nn.Conv2d(5, 4, 1)
        self.order = order
        self.scaled = scaled
        with torch.no_grad():
            self.norm.running_var.uniform_(0.5, 2.0)
            self.whole.weight.copy_(self.lossy.weight)
            self.whole.bias.copy_(self.lossy.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.order == "lossy first":
            shortcut = self.first(torch.relu(self.lossy(x)))
            branch = self.norm(self.second(torch.relu(self.whole(x))))
        else:
            branch = self.norm(self.second(torch.relu(self.whole(x))))
            shortcut = self.first(torch.relu(self.lossy(x)))
        if self.scaled:
            branch = branch.permute(0, 1, 3, 2) * self.scale
            shortcut = shortcut.permute(0, 1, 3, 2)
        return self.head(torch.relu(branch + shortcut))


@pytest.mark.slow
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("order", ["lossy first", "lossy last"])
def test_a_branch_corrects_what_is_lost_in_the_tensor_that_is_added_to_it(order: str, scaled: bool) -> None:
    torch.manual_seed(0)
    model = Sum(order, scaled).eval()
    graph = aacp.trace(model, images((3, 7, 7), 1))
    kept = {"lossy": np.array(HALF)}
    network = aacp.shrink(model, graph, kept)
    unseen = images((3, 7, 7), 8, seed=2)
    assert error(network, model, unseen) > 0.05
    aacp.repair(network, model, graph, kept, images((3, 7, 7)))
    assert error(network, model, unseen) < 1e-4


@pytest.mark.slow
def test_a_residual_network_is_closer_to_the_original_than_inherited_and_recalibrated() -> None:
    model, graph, kept, network = residual_case()
    pictures = images((3, 8, 8), 256)
    unseen = images((3, 8, 8), 64, seed=2)
    recalibrated = copy.deepcopy(network)
    aacp.recalibrate(recalibrated, pictures)
    aacp.repair(network, model, graph, kept, pictures)
    assert squared_error(network, model, unseen) < 0.2 * squared_error(recalibrated, model, unseen)


def squared_error(network: nn.Module, model: nn.Module, x: Tensor) -> float:
    with torch.no_grad():
        return float((network(x) - model(x)).square().mean())


def test_images_of_a_sorted_data_set_are_mixed_before_some_are_held_out() -> None:
    labels = torch.arange(100).float()
    others = {"size": torch.zeros(2), "anchors": torch.arange(150), "scale": torch.tensor(2.0)}
    inputs = sequential._shuffled({"image": labels[:, None], "again": labels, **others})
    assert inputs["image"][:, 0].tolist() == inputs["again"].tolist()  # what belongs together stays together
    assert sorted(inputs["again"].tolist()) == labels.tolist()
    assert 30 < inputs["again"][75:].mean() < 70  # the last quarter would have a mean of 87
    assert all(torch.equal(inputs[name], other) for name, other in others.items())
