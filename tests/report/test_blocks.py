"""The share of its channels that each block keeps: the data of the chart (the paper's Fig. 5)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aacp.channels.elements import ChannelGroup
from aacp.channels.graph import ChannelGraph
from aacp.report.blocks import block_of, blocks_figure, blocks_of, blocks_of_run, kept_shares
from aacp.report.page import write_report
from aacp.report.run import Run
from aacp.runs.chosen import ChosenStructure
from report.pages import Page
from report.runs import Made, asking, copy_of


@pytest.mark.parametrize(
    ("layer", "block"),
    [
        ("layer1.0.conv1", "layer1.0"),
        ("layer2.0.downsample.0", "layer2.0"),
        ("features.3.conv.0.0", "features.3"),
        ("stages.0.blocks.1.mlp.fc1", "stages.0.blocks.1"),
        ("features.1.0.block.0.0", "features.1.0"),
        ("features.17", "features.17"),
        ("conv1", "conv1"),
    ],
)
def test_a_block_is_a_numbered_part_with_named_parts(layer: str, block: str) -> None:
    assert block_of(layer) == block


def small_graph() -> ChannelGraph:
    """Two blocks in one stage and one in the next; the second block has two groups, one with units of two channels."""
    groups = (
        ChannelGroup("a.0.conv1", 8, 1, ()),
        ChannelGroup("a.1.conv1", 8, 1, ()),
        ChannelGroup("a.1.conv2", 4, 2, ()),
        ChannelGroup("b.0.conv1", 10, 1, ()),
        ChannelGroup("out", 5, 1, (), frozen="network output"),
    )
    return ChannelGraph("net", groups, (), (), ())


def run_of(counts: tuple[int, ...], name: str = "r") -> Run:
    return Run(name, graph=small_graph(), choice=ChosenStructure(counts, 0.5, ()))


def test_groups_of_a_block_are_counted_together_in_channels() -> None:
    assert blocks_of(small_graph()) == {"a.0": [0], "a.1": [1, 2], "b.0": [3]}
    assert kept_shares(small_graph(), (4, 8, 1, 5)) == {"a.0": 4 / 8, "a.1": (8 + 1 * 2) / 16, "b.0": 5 / 10}


def test_the_line_of_a_run_is_interrupted_between_stages() -> None:
    figure = blocks_figure([run_of((4, 8, 1, 5))])
    assert figure is not None
    whole, shown = figure.traces
    assert (whole["name"], whole["y"]) == ("unpruned", [100, 100, 100])
    assert shown["x"] == [0, 1, None, 2]
    assert shown["y"] == [50, 62.5, None, 50]
    assert figure.layout["xaxis"]["ticktext"] == ["a.0", "a.1", "b.0"]


def test_runs_of_different_networks_are_not_drawn_together() -> None:
    groups = small_graph().groups
    narrower = replace(small_graph(), groups=(*groups[:3], replace(groups[3], width=9), groups[4]))
    other = replace(run_of((4, 8, 1, 5)), graph=narrower)
    assert blocks_figure([run_of((4, 8, 1, 5)), other]) is None


def test_a_network_whose_blocks_are_single_layers_has_no_figure_of_its_own() -> None:
    groups = tuple(ChannelGroup(f"features.{place}", 8, 1, ()) for place in (0, 3, 7))
    run = Run("r", graph=ChannelGraph("net", groups, (), (), ()), choice=ChosenStructure((4, 4, 8), 0.5, ()))
    assert blocks_of_run(run) is None
    assert blocks_figure([run, run]) is not None


@pytest.mark.slow
def test_two_rates_are_drawn_beside_the_unpruned_network(made: Made, tmp_path: Path) -> None:
    runs = []
    for rate, counts in ((0.4, made.graph.full), (0.5, [(width + 1) // 2 for width in made.graph.full])):
        choice = replace(made.choice, counts=tuple(counts))
        runs.append(copy_of(made, tmp_path / f"r{rate}", request=asking(made, rate, None), choice=choice))
    figure: Any = Page(write_report([run.path for run in runs], tmp_path / "page.html")).figures["all-blocks"]
    names = [trace["name"].replace("\N{NO-BREAK SPACE}", " ") for trace in figure["data"]]
    assert names == ["unpruned", "MACs \N{MINUS SIGN}40 %", "MACs \N{MINUS SIGN}50 %"]
    blocks = [f"layer{stage}.{block}" for stage in (1, 2, 3) for block in (0, 1, 2)]
    assert figure["layout"]["xaxis"]["ticktext"] == blocks
    # Only the first convolution of a block of ResNet20 is its own: the second one belongs to the residual stream.
    groups = json.loads((made.path / "graph.json").read_text())["groups"]
    inner = [group["name"] for group in groups if group["name"].endswith("conv1") and "." in group["name"]]
    assert inner == [f"{block}.conv1" for block in blocks]
    assert [y for y in figure["data"][1]["y"] if y is not None] == [100] * 9
    assert [y for y in figure["data"][2]["y"] if y is not None] == [50] * 9
    assert figure["data"][2]["x"] == [0, 1, 2, None, 3, 4, 5, None, 6, 7, 8]
