"""The channel graph as data: members, producers, what a structure keeps, JSON, and the printed table."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import aacp
from aacp.channels.elements import Member
from aacp.channels.graph import ChannelGraph


@pytest.fixture(scope="module")
def graph() -> ChannelGraph:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 12, 3), nn.Flatten(), nn.Linear(12 * 16, 5))
    return aacp.trace(net, torch.randn(1, 3, 8, 8))


def test_a_graph_survives_json_and_disk(graph: ChannelGraph, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert ChannelGraph.from_json(json.loads(json.dumps(graph.to_json()))) == graph
    graph.save(tmp_path / "graph.json")
    assert ChannelGraph.load(tmp_path / "graph.json") == graph


def test_a_graph_of_another_format_is_rejected(graph: ChannelGraph) -> None:
    with pytest.raises(aacp.GraphMismatch, match="Trace the network again"):
        ChannelGraph.from_json({**graph.to_json(), "format": 99})


def test_lane_sizes_count_what_the_masks_keep(graph: ChannelGraph) -> None:
    generator = np.random.default_rng(0)
    structures = np.stack([generator.integers(1, group.width + 1, 20) for group in graph.free], axis=1)
    for row, sizes in zip(structures, graph.lane_sizes(structures), strict=True):
        units = np.append(graph.kept_units(row.tolist()), True)
        assert sizes.tolist() == [int(units[lane].sum()) for lane in graph.lanes]


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ([3], "2 counts, but got 1"),
        ([0, 3], "between 1 and 8"),
        ([9, 3], "between 1 and 8"),
        ([[1, 1], 3], "different units"),
        ([[-1], 3], "between 1 and 8"),
        ([[True] * 7, 3], "has shape"),
        ({"nonsense": 3}, "no group 'nonsense'"),
        ({"4": 3}, "frozen: network output"),
    ],
)
def test_what_cannot_be_kept_is_rejected(graph: ChannelGraph, kept: object, message: str) -> None:
    with pytest.raises(aacp.InvalidStructure, match=message):
        graph.kept_units(kept)  # type: ignore[arg-type]


def test_a_structure_of_the_wrong_length_has_no_cost(graph: ChannelGraph) -> None:
    with pytest.raises(aacp.InvalidStructure, match="one count per free group"):
        aacp.macs(graph)([1, 2, 3])


def test_counts_masks_and_indices_mean_the_same(graph: ChannelGraph) -> None:
    by_count = graph.kept_units({"0": 3})
    by_index = graph.kept_units({"0": [0, 1, 2]})
    by_mask = graph.kept_units({"0": np.arange(8) < 3})
    assert np.array_equal(by_count, by_index)
    assert np.array_equal(by_count, by_mask)
    assert np.array_equal(graph.kept_units(aacp.Structure([3, 12])), by_count)


def test_a_graph_prints_a_table_that_says_what_is_frozen(graph: ChannelGraph) -> None:
    lines = str(graph).splitlines()
    assert "2 of 3 groups free, 100.0% of convolution channels" in lines[0]
    assert [line.split() for line in lines[2:]] == [
        ["0", "8", "0", "free"],
        ["2", "12", "2", "free"],
        ["4", "5", "4", "network", "output"],
    ]


def test_members_are_data_and_text_in_the_file(graph: ChannelGraph) -> None:
    assert graph.groups[0].members == (Member("0.weight", 0), Member("0.bias", 0), Member("2.weight", 1))
    written = graph.to_json()["groups"][0]
    assert written["members"] == ["0.weight[0]", "0.bias[0]", "2.weight[1]"]
    assert Member("0.weight", 0).module == "0"


@given(st.text(), st.integers(0, 9))
def test_a_member_survives_its_text(tensor: str, dim: int) -> None:
    assert Member.parse(str(Member(tensor, dim))) == Member(tensor, dim)


def test_producers_are_the_layers_whose_outputs_lie_in_a_group() -> None:
    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.ConvTranspose2d(3, 6, 2)  # its output channels lie in the second dimension of the weight
            self.block = nn.Sequential(nn.Conv2d(6, 5, 1), nn.ConvTranspose2d(5, 6, 1))
            self.last = nn.Conv2d(6, 2, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.stem(x)
            return self.last(x + self.block(x))

    graph = aacp.trace(Stream(), torch.randn(1, 3, 5, 5))
    assert {group.name: graph.producer_names(group) for group in graph.groups} == {
        "stem": ("stem", "block.1"),
        "block.0": ("block.0",),
        "last": ("last",),
    }
    assert graph.producer_counts == (2, 1)
    frozen = aacp.trace(Stream(), torch.randn(1, 3, 5, 5), frozen="block.1")
    assert [group.name for group in frozen.free] == ["block.0"]  # what a transposed convolution reads stays free
