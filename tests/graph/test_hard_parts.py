"""Constructs that stopped tracing in networks of other tasks: each in a small network of our own."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import aacp
from aacp.graph.examples import FlatNetwork
from aacp.graph.tracing import prepare
from graph.oracles import counted_macs, half
from sampling import sampled


def free(graph: aacp.ChannelGraph) -> list[str]:
    return [group.name for group in graph.free]


def require_exact(model: nn.Module, example: Tensor) -> aacp.ChannelGraph:
    """The graph, after a check of a cut that tracing did not try: outputs and MACs."""
    graph = aacp.trace(model, example)
    kept = half(graph, seed=5)
    assert prepare(model, example).difference_when(graph, graph.kept_units(kept)) is None
    counts = np.array([len(kept[group.name]) for group in graph.free])
    smaller = aacp.shrink(model, graph, kept).eval()
    assert int(aacp.macs(graph)(counts)) == counted_macs(smaller, (example,))
    return graph


class Two(nn.Module):
    """Two convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.last = nn.Conv2d(8, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).relu())


def test_a_configuration_may_hold_python_modules_and_locks() -> None:
    model = Two()
    model.config = SimpleNamespace(backend=json, lock=threading.Lock())  # type: ignore[assignment]
    graph = aacp.trace(model, torch.randn(1, 3, 9, 9))
    assert free(graph) == ["first"]
    assert aacp.shrink(model, graph, [3]).config.backend is json  # type: ignore[union-attr]


class Untraceable(nn.Module):
    """A part, and control flow that depends on the data."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.part(x)
        return -y if y.sum() > 1e9 else y


def test_an_attribute_may_be_called_modules() -> None:
    model = Two()
    model.modules = [model.first, model.last]  # type: ignore[assignment, method-assign]
    x = torch.randn(2, 3, 9, 9)
    assert free(aacp.trace(model, x)) == ["first"]
    assert free(aacp.trace(Untraceable(model), x)) == ["part.first"]
    assert torch.equal(FlatNetwork(model, (x,))(x)[0], model(x))
    assert aacp.recalibrate(model, x).norms == 0


class Recognition(nn.Module):
    """Convolutions over a spectrogram, then a recurrent layer over time."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.first = nn.Conv1d(5, 12, 3)
        self.second = nn.Conv1d(12, 10, 3)
        self.recurrent = kind(10, 7, num_layers=2, bidirectional=True, batch_first=True)
        self.last = nn.Linear(14, 4)

    def forward(self, x: Tensor) -> Tensor:
        features = self.second(self.first(x).relu()).transpose(1, 2)
        return self.last(self.recurrent(features)[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", sampled([nn.LSTM, nn.GRU], 2))
def test_channels_that_enter_a_recurrent_layer_can_be_cut(kind: type[nn.RNNBase]) -> None:
    graph = require_exact(Recognition(kind), torch.randn(2, 5, 16))
    assert free(graph) == ["first", "second"]


@pytest.mark.slow
@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_weights_divided_by_their_norm_can_be_cut_along_all_channels(norm: object) -> None:
    layers = [nn.Conv2d(3, 8, 3), nn.Conv2d(8, 12, 3), nn.Conv2d(12, 4, 3)]
    model = nn.Sequential(layers[0], norm(layers[1]), layers[2])  # type: ignore[operator]
    graph = require_exact(model, torch.randn(1, 3, 9, 9))
    assert free(graph) == ["0", "1"]


class Auxiliary(nn.Module):
    """A network with a second head that runs only in training."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.second = nn.Conv2d(8, 12, 3)
        self.last = nn.Linear(12, 4)
        self.aux = nn.Sequential(nn.Conv2d(8, 6, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        features = self.first(x).relu()
        output = self.last(self.second(features).mean((2, 3)))
        return (output, self.aux(features)) if self.training else output


def test_a_head_that_runs_only_in_training_loses_the_channels_that_it_reads() -> None:
    model = Auxiliary()
    graph = aacp.trace(model, torch.randn(1, 3, 9, 9))
    assert free(graph) == ["first", "second"]
    assert not graph.notes
    smaller = aacp.shrink(model, graph, {"first": [1, 2, 6]}).train()
    assert smaller.aux[0].weight.shape == (6, 3, 1, 1)  # type: ignore[index, union-attr]
    assert torch.equal(smaller.aux[0].weight, model.aux[0].weight[:, [1, 2, 6]])  # type: ignore[index, union-attr]
    sum(output.sum() for output in smaller(torch.randn(2, 3, 9, 9))).backward()
    assert aacp.params(graph)([3, 12]) == sum(p.numel() for p in smaller.parameters())


def test_arguments_by_keyword_only_are_named_with_what_to_do() -> None:
    class Keyword(Two):
        def forward(self, x: Tensor, *, scale: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x) * scale

    class Positional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = Keyword()

        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return self.network(x, scale=scale)

    example = {"x": torch.randn(1, 3, 9, 9), "scale": torch.ones(1)}
    with pytest.raises(aacp.InvalidOption, match="takes scale by keyword only"):
        aacp.trace(Keyword(), example)
    assert free(aacp.trace(Positional(), example)) == ["network.first"]


@pytest.mark.parametrize("enabled", [False, True])
def test_code_under_autocast_is_traced(enabled: bool) -> None:
    class Cast(Two):
        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                return super().forward(x)

    assert free(aacp.trace(Cast(), torch.randn(1, 3, 9, 9))) == ["first"]


class Attentive(nn.Module):
    """A convolution, then torch's own layer of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 10, 3, 3)
        self.embed = nn.Conv2d(10, 8, 1)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.last = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(self.patches(x).relu()).flatten(2).transpose(1, 2)
        return self.last(self.layer(tokens).mean(1))


@pytest.mark.slow
def test_the_macs_of_torchs_own_attention_are_those_without_its_fast_path() -> None:
    model = Attentive().eval()
    x = torch.randn(2, 3, 12, 12)
    graph = aacp.trace(model, x)
    kept = half(graph, seed=1)
    smaller = aacp.shrink(model, graph, kept).eval()
    counts = [len(kept[group.name]) for group in graph.free]
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        expected = counted_macs(model, (x,)), counted_macs(smaller, (x,))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert (int(aacp.macs(graph)(graph.full)), int(aacp.macs(graph)(counts))) == expected
    assert counted_macs(model, (x,)) < expected[0]  # the difference that the note explains
    assert any("fast path" in note for note in graph.notes)
    assert free(graph) == ["patches", "layer.linear1"]


class Merged(nn.Module):
    """A convolution whose weights are made of two others, as re-parameterised networks have them."""

    def __init__(self, merges_in_forward: bool) -> None:
        super().__init__()
        self.merges_in_forward = merges_in_forward
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(12, 4, 1)
        self.large, self.small, self.merged = nn.Conv2d(8, 12, 3), nn.Conv2d(8, 12, 1), nn.Conv2d(8, 12, 3)

    def merge(self) -> None:
        self.merged.weight.data = self.large.weight.data + nn.functional.pad(self.small.weight.data, (1, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        if self.merges_in_forward:
            self.merge()
        return self.last(self.merged(self.first(x).relu()))


class Differentiable(Merged):
    """The same, with a sum that has gradients."""

    def merge(self) -> None:
        self.merged.weight.data = self.large.weight + nn.functional.pad(self.small.weight, (1, 1, 1, 1))


@pytest.mark.slow
def test_weights_that_forward_assigns_are_named_with_what_to_do() -> None:
    x = torch.randn(1, 3, 9, 9)
    with pytest.raises(
        aacp.UntraceableModel, match=r"forward of Merged assigns .* merged\.weight\. Do this .* outside"
    ):
        aacp.trace(Merged(merges_in_forward=True), x)
    blocks = nn.Sequential(nn.Conv2d(3, 3, 1), Merged(merges_in_forward=True))
    with pytest.raises(aacp.UntraceableModel, match=r"forward of 1 \(Merged\) assigns .* merged\.weight"):
        aacp.trace(blocks, x)
    before = Merged(merges_in_forward=False)
    before.merge()
    assert free(aacp.trace(before, x)) == ["first", "merged"]
