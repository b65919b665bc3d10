"""Bad input: each mistake has its own error with advice, and changes nothing."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import aacp

IMAGE = torch.randn(1, 3, 8, 8)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))


class Failing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        raise KeyError("the model's own mistake")


class Undecided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) if x.mean() > 0 else -self.conv(x)


class Silent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Tensor) -> str:
        self.conv(x)
        return "done"


def broken(value: float) -> nn.Module:
    model = net()
    model[0].weight.data[0, 0, 0, 0] = value
    return model


def with_generator() -> nn.Module:
    model = net()
    model.rows = (row for row in range(3))
    return model


CASES = {
    "no convolution": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), IMAGE, aacp.NothingToPrune),
    "only an output": (lambda: nn.Conv2d(3, 8, 3), IMAGE, aacp.NothingToPrune),
    "a wrong shape": (net, torch.randn(1, 4, 8, 8), aacp.InvalidExample),
    "too small an image": (net, torch.randn(1, 3, 2, 2), aacp.InvalidExample),
    "not a tensor": (net, "image.png", aacp.InvalidExample),
    "too many inputs": (net, (IMAGE, IMAGE), aacp.InvalidExample),
    "an error in forward": (Failing, IMAGE, aacp.InvalidExample),
    "no tensor comes out": (Silent, IMAGE, aacp.InvalidExample),
    "control flow on data": (Undecided, IMAGE, aacp.UntraceableModel),
    "NaN weights": (lambda: broken(float("nan")), IMAGE, aacp.UntraceableModel),
    "infinite weights": (lambda: broken(float("inf")), IMAGE, aacp.UntraceableModel),
    "no shape yet": (lambda: nn.Sequential(nn.LazyConv2d(8, 3), nn.Conv2d(8, 4, 3)), IMAGE, aacp.UntraceableModel),
    "an infinite example": (net, IMAGE / 0, aacp.InvalidExample),
    "an empty batch": (net, IMAGE[:0], aacp.InvalidExample),
    "no example": (net, None, aacp.InvalidExample),
    "a part that cannot be copied": (lambda: with_generator(), IMAGE, aacp.UntraceableModel),
    "weights without data": (lambda: net().to("meta"), IMAGE, aacp.UntraceableModel),
    "not a module": (lambda: "resnet18", IMAGE, aacp.InvalidOption),
}


@pytest.mark.parametrize("case", CASES)
def test_the_error_is_named_and_advises(case: str) -> None:
    build, example, kind = CASES[case]
    with pytest.raises(kind) as caught:
        aacp.trace(build(), example)
    assert isinstance(caught.value, aacp.AACPError)
    sentences = re.split(r"[.!] (?=[A-Z])", str(caught.value))
    assert len(sentences) >= 2, "a message says what is wrong, then what to do"


class HalfInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3).half()

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).half()).float()


def test_a_network_of_several_types_is_named() -> None:
    words = r"HalfInside has parameters of the types torch\.float16, torch\.float32, but is traced in torch\.float32"
    with pytest.raises(aacp.UntraceableModel, match=words):
        aacp.trace(HalfInside(), IMAGE)


def test_the_wrong_shape_is_shown() -> None:
    with pytest.raises(aacp.InvalidExample, match=r"\(1, 4, 8, 8\).*expected input.* to have 3 channels"):
        aacp.trace(net(), torch.randn(1, 4, 8, 8))


@pytest.mark.parametrize("options", [{}, {"parts": ("0",)}], ids=["whole", "part"])
def test_a_second_input_is_asked_for_in_python_and_on_the_command_line(options: dict[str, Any]) -> None:
    class Two(nn.Sequential):
        def forward(self, first: Tensor, second: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(first + second)

    with pytest.raises(aacp.InvalidExample, match=r"go in a tuple \(on the command line, one --input for each\)\.$"):
        aacp.trace(Two(*net()), IMAGE, **options)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_network_that_returns_nothing_finite_is_named(value: float) -> None:
    """The weights are finite, so that only the outputs show it."""
    words = "Sequential returns an output of which no value is finite on the example. Check the network's weights"
    with pytest.raises(aacp.InvalidExample, match=words):
        aacp.trace(nn.Sequential(*net(), nn.Threshold(float("inf"), value)), IMAGE)


def test_the_line_of_code_that_decides_on_data_is_shown() -> None:
    with pytest.raises(aacp.UntraceableModel, match=r"trace Undecided \(forward, line \d+ of test_bad_input\.py\)"):
        aacp.trace(Undecided(), IMAGE)


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_scripted_part_is_named() -> None:
    model = net()
    model[1] = torch.jit.script(nn.ReLU())
    with pytest.raises(aacp.UntraceableModel, match=r"^1 in the model is a TorchScript module\. Give"):
        aacp.trace(model, IMAGE)


def test_everything_frozen_by_hand_is_an_error_that_says_so() -> None:
    with pytest.raises(aacp.NothingToPrune, match=r"frozen by hand \(0\)"):
        aacp.trace(net(), IMAGE, frozen=("0",))


@pytest.mark.parametrize("options", [{"scope": "outer"}, {"form": "onnx"}, {"frozen": ("nonsense.*",)}])
def test_options_that_mean_nothing_are_rejected(options: dict[str, object]) -> None:
    with pytest.raises(aacp.InvalidOption):
        aacp.trace(net(), IMAGE, **options)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    "kept", [[9], [0], [2, 2], {"0": []}, {"0": [7, 8]}, {"2": 1}, 5, "ab", None, [1.5], [True], [None], [[[0, 1]]]]
)
def test_structures_that_the_graph_does_not_allow_are_rejected(kept: object) -> None:
    model = net()
    graph = aacp.trace(model, IMAGE)
    with pytest.raises(aacp.InvalidStructure):
        aacp.shrink(model, graph, kept)  # type: ignore[arg-type]


@pytest.mark.parametrize("choice", [2**60, 2**62, 10**30, [2**60], [1, [2]]])
def test_units_that_no_array_can_hold_are_rejected(choice: object) -> None:
    graph = aacp.trace(net(), IMAGE)
    with pytest.raises(aacp.InvalidStructure, match="keeps between 1 and 8 different units, but got"):
        graph.kept_units({"0": choice})


def test_a_graph_of_another_network_is_rejected_by_name() -> None:
    graph = aacp.trace(net(), IMAGE)
    other = nn.Sequential(nn.Conv2d(3, 9, 3), nn.ReLU(), nn.Conv2d(9, 4, 3))
    with pytest.raises(aacp.GraphMismatch, match=r"0\.weight has shape \(9, 3, 3, 3\)"):
        aacp.shrink(other, graph, [3])


@pytest.mark.parametrize("counts", [[0], [-3], [99], [[1], [9]]])
def test_counts_that_no_network_has_cost_nothing_we_know(counts: object) -> None:
    graph = aacp.trace(net(), IMAGE)
    with pytest.raises(aacp.InvalidStructure, match="at least 1 unit"):
        aacp.macs(graph)(counts)


def test_a_file_that_holds_no_graph_is_rejected(tmp_path) -> None:  # type: ignore[no-untyped-def]
    for name, text in {"torn": '{"format": 1', "list": "[]", "other": '{"format": 1}'}.items():
        (tmp_path / name).write_text(text)
    for name in ("torn", "list", "other", "missing"):
        with pytest.raises(aacp.GraphMismatch, match="Trace the network again"):
            aacp.ChannelGraph.load(tmp_path / name)
