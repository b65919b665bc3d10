"""Steps are found on a simulated machine whose kernels have known steps, and none are found where there are none."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

import aacp
from aacp.channels.elements import ChannelGroup
from aacp.latency.steps import coloured, find_steps, probe_counts
from latency.own_int8 import OwnRuntime
from latency_bench import FakeBench, blocked, chain, proportional

GRAPH = chain(64, 128, 96, 256)


def rounded_to(multiple: int):
    """A kernel that pads its output channels."""
    return lambda cin, cout: 1e-6 + 1e-9 * cin * multiple * math.ceil(cout / multiple)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_blocks_of_sixteen_are_found(noise: float) -> None:
    assert find_steps(FakeBench(GRAPH, blocked, noise), GRAPH) == dict.fromkeys(
        ("conv0", "conv1", "conv2", "conv3"), 16
    )


def test_where_every_channel_saves_time_the_step_is_not_coarse() -> None:
    steps = find_steps(FakeBench(GRAPH, proportional), GRAPH)
    assert set(steps.values()) <= {1, 2, 4, 8}


@pytest.mark.parametrize("multiple", [8, 32])
def test_other_blocks_are_found_where_only_outputs_are_padded(multiple: int) -> None:
    graph = chain(64, 64)

    def kernel(cin: int, cout: int) -> float:
        up = [multiple * math.ceil(width / multiple) for width in (cin, cout)]
        return 1e-6 + 1e-9 * up[0] * up[1]

    assert find_steps(FakeBench(graph, kernel), graph) == {"conv0": multiple, "conv1": multiple}


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_where_widths_make_no_difference_the_step_is_eight(noise: float) -> None:
    bench = FakeBench(GRAPH, lambda cin, cout: 1e-5, noise)
    assert set(find_steps(bench, GRAPH).values()) == {8}


def test_small_groups_get_small_steps() -> None:
    graph = chain(4, 6, 1)
    steps = find_steps(FakeBench(graph, blocked), graph)
    assert all(1 <= steps[group.name] <= group.width for group in graph.free)
    assert aacp.SearchSpace(graph, steps).full == graph.full


def test_what_it_returns_makes_a_space() -> None:
    space = aacp.SearchSpace(GRAPH, find_steps(FakeBench(GRAPH, blocked), GRAPH))
    assert space.choices[0] == (16, 32, 48, 64)


def test_groups_of_one_colour_share_no_piece() -> None:
    bench = FakeBench(GRAPH, blocked)
    colours = coloured([group.name for group in GRAPH.free], bench.pieces)
    assert all(one != other for one, other in itertools.pairwise(colours))
    assert len(set(colours)) == 2


def test_each_power_of_two_divides_one_probe_and_no_larger_one_does() -> None:
    counts = probe_counts(ChannelGroup("a", 128, 1, ()))
    assert counts == {0: 64, 1: 63, 2: 62, 4: 60, 8: 56, 16: 48, 32: 32}
    assert probe_counts(ChannelGroup("a", 512, 1, ()))[0] == 128
    assert probe_counts(ChannelGroup("a", 1, 1, ())) == {0: 1}
    assert probe_counts(ChannelGroup("a", 16, 4, ())) == {0: 16, 4: 15, 8: 14, 16: 12, 32: 8}


@pytest.mark.slow
def test_the_kernels_in_int8_are_the_ones_that_are_probed() -> None:
    network = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 96, 3), nn.ReLU(), nn.Conv2d(96, 8, 3)).eval()
    example = torch.zeros(1, 3, 8, 8)
    graph = aacp.trace(network, example)

    def steps(precision: str) -> set[int]:
        where = aacp.Deployment(OwnRuntime(), precision=precision)
        return set(aacp.discover_steps(network, graph, where, example=example).values())

    assert steps("int8") == {32}
    assert max(steps("float32")) <= 8
