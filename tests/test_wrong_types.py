"""Values of the wrong type, given to functions of the library, are named in an error of aacp."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp

EXAMPLE = torch.randn(1, 1, 8, 8)


class Leaving(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sys.exit(0)


@pytest.fixture(scope="module")
def graph() -> aacp.ChannelGraph:
    return aacp.trace(aacp.build_model("digits_resnet"), EXAMPLE)


@pytest.mark.slow
def test_graphs_and_networks_are_not_mistaken_for_others(graph: aacp.ChannelGraph) -> None:
    network = aacp.build_model("digits_resnet")
    for wrong in (network, None, {}):
        with pytest.raises(aacp.InvalidOption, match="not a ChannelGraph"):
            aacp.SearchSpace(wrong)  # type: ignore[arg-type]
    with pytest.raises(aacp.AACPError, match="the class Linear"):
        aacp.shrink(nn.Linear, graph, graph.full)  # type: ignore[arg-type]
    with pytest.raises(aacp.InvalidOption, match="not a ChannelGraph"):
        aacp.shrink(network, {}, graph.full)  # type: ignore[arg-type]
    with pytest.raises(aacp.InvalidOption, match="'auto', which is not a number"):
        aacp.SearchSpace(graph, "auto")
    with pytest.raises(aacp.InvalidOption, match="frozen is 5"):
        aacp.trace(network, EXAMPLE, frozen=5)  # type: ignore[arg-type]


def test_a_network_that_ends_the_program_is_an_error() -> None:
    with pytest.raises((aacp.UserCodeFailed, aacp.UntraceableModel), match="SystemExit"):
        aacp.trace(Leaving(), EXAMPLE)


@pytest.mark.parametrize("folder", [5, None, "", b"x"])
def test_what_is_not_a_folder_is_rejected(folder: Any) -> None:
    data = aacp.load_data("digits")
    with pytest.raises(aacp.InvalidOption, match=r"folder is .* which is not a path"):
        aacp.prune(aacp.build_model("digits_resnet"), data, {"macs": 0.5}, folder)
    with pytest.raises(aacp.InvalidOption, match=r"folder is .* which is not a path"):
        aacp.repeat(lambda seed, place: {}, [0], folder)


def test_a_class_in_the_place_of_a_loss_or_score_is_named(tmp_path: Path) -> None:
    class Score:
        def __call__(self, network: nn.Module, batches: aacp.Batches) -> float:
            return 1.0

    model, data = aacp.build_model("digits_resnet"), aacp.load_data("digits")
    with pytest.raises(aacp.InvalidOption, match=r"loss is the class CrossEntropyLoss, .* Give CrossEntropyLoss\(\)"):
        aacp.prune(model, data, {"macs": 0.5}, tmp_path, loss=nn.CrossEntropyLoss)
    with pytest.raises(aacp.InvalidOption, match=r"score is the class Score, .* Give Score\(\)"):
        aacp.find(model, data.train, {"macs": 0.5}, score=Score)  # type: ignore[arg-type]


def test_what_is_repeated_is_a_function_with_a_name_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match="run is 5, not a function"):
        aacp.repeat(5, [0], tmp_path)  # type: ignore[arg-type]
    for name in ("../x", "", "a/b", 5):
        with pytest.raises(aacp.InvalidOption):
            aacp.repeat(lambda seed, place: {}, [0], tmp_path, name=name)  # type: ignore[arg-type]
    for seeds in ("012", 3, [0.5], [-1], [0, 0], []):
        with pytest.raises(aacp.InvalidOption):
            aacp.repeat(lambda seed, place: {}, seeds, tmp_path)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_earlier_runs_are_a_list(tmp_path: Path) -> None:
    network = aacp.build_model("digits_resnet")
    with pytest.raises(aacp.InvalidOption, match="known_from is 'done', which is not a list of paths"):
        aacp.prune(network, aacp.load_data("digits"), {"macs": 0.5}, tmp_path / "run", known_from="done")
    with pytest.raises(aacp.InvalidOption, match="folders is 5"):
        aacp.write_report(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [{"seed": -1}, {"seed": 0.5}, {"holdout": "x"}, {"holdout": 1.0}, {"holdout": -1}])
def test_data_with_an_odd_hold_out_are_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(aacp.InvalidOption):
        aacp.load_data("digits", **fields)
