"""Steps are found on a simulated machine whose kernels have known steps, and none are found where there are none.

If noise hides the steps, the probes are measured longer; groups that stay undecided are named and keep the default.
"""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import aacp
from aacp.channels.elements import ChannelGroup
from aacp.latency.pieces import TimedStructure
from aacp.latency.steps import FoundSteps, coloured, find_steps, kept_steps, probe_counts, step_of
from latency.own_int8 import OwnRuntime
from latency_bench import FakeBench, Kernel, blocked, chain, proportional

GRAPH = chain(64, 128, 96, 256)
NAMES = ("conv0", "conv1", "conv2", "conv3")
PASS = 2 * 8  # two colours; 0 (twice), 1, 2, 4, 8, 16 and 32 channels less
NOISY = 0.04  # the standard error of a probe after three passes is 1.6 %, and five of them hide the 6 % that decide
VERY_NOISY = 0.3


def padded(multiple: int) -> Kernel:
    """A kernel that pads its channels to blocks."""

    def seconds(cin: int, cout: int) -> float:
        first, second = (multiple * math.ceil(width / multiple) for width in (cin, cout))
        return 1e-6 + 1e-9 * first * second

    return seconds


def launch(cin: int, cout: int) -> float:
    """A kernel that takes the time of its launch, whatever its channels are."""
    return 1e-5


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
    assert find_steps(FakeBench(graph, padded(multiple)), graph) == {"conv0": multiple, "conv1": multiple}


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_where_widths_make_no_difference_the_step_is_eight_and_that_is_decided(noise: float) -> None:
    bench = FakeBench(GRAPH, launch, noise)
    steps = find_steps(bench, GRAPH)
    assert steps == dict.fromkeys(NAMES, 8)
    assert (steps.undecided, steps.note) == ((), "")
    assert len(bench.measured) == 3 * PASS


@pytest.mark.parametrize("multiple", [16, 32])
def test_a_quiet_machine_measures_every_probe_three_times(multiple: int) -> None:
    bench = FakeBench(GRAPH, padded(multiple), 0.005)
    steps = find_steps(bench, GRAPH)
    assert steps == dict.fromkeys(NAMES, multiple)
    assert steps.undecided == ()
    assert len(bench.measured) == 3 * PASS


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("multiple", [16, 32])
def test_a_noisy_machine_measures_longer_and_finds_the_same_steps(multiple: int, seed: int) -> None:
    bench = FakeBench(GRAPH, padded(multiple), NOISY, seed)
    steps = find_steps(bench, GRAPH)
    assert steps == dict.fromkeys(NAMES, multiple)
    assert steps.undecided == ()
    assert 3 * PASS < len(bench.measured) <= 12 * PASS


@pytest.mark.parametrize("kernel", [padded(16), padded(32), proportional, launch])
def test_a_very_noisy_machine_measures_up_to_the_limit_and_names_what_it_did_not_decide(kernel: Kernel) -> None:
    bench = FakeBench(GRAPH, kernel, VERY_NOISY)
    steps = find_steps(bench, GRAPH)
    assert steps == dict.fromkeys(NAMES, 8)
    assert steps.undecided == NAMES
    assert len(bench.measured) == 12 * PASS
    words = (
        "timing did not decide the steps of 4 of 4 groups in up to 12 passes, so these keep the default of at most 8"
    )
    assert steps.note.startswith(f"{words} channels: conv0, conv1, conv2, conv3; ")


class NoisyEnd(FakeBench):
    """A machine that is quiet but for the last piece, a fifth of the time of the last group and no part of others."""

    def __call__(self, structure: aacp.Structure) -> TimedStructure:
        found = super().__call__(structure)
        *first, last = found.pieces
        return replace(found, pieces=(*first, last * math.exp(0.16 * self.generator.standard_normal())))


def test_only_groups_that_are_not_decided_are_measured_again(capsys: pytest.CaptureFixture[str]) -> None:
    bench = NoisyEnd(GRAPH, padded(16))
    with aacp.show_progress():
        steps = find_steps(bench, GRAPH)
    assert (steps, steps.undecided) == (dict.fromkeys(NAMES, 16), ())
    again = bench.measured[3 * PASS :]
    assert all(structure.counts[:3] == (64, 128, 96) for structure in again)
    assert again[:8] == [aacp.Structure([64, 128, 96, count]) for count in (64, 64, 63, 62, 60, 56, 48, 32)]
    said = capsys.readouterr().err
    assert "not decided yet: the steps of 1 of 4 groups; measuring the probes of these again, pass 4 of at most" in said


def times(**saved: float) -> dict[int, list[float]]:
    """The times of the probes of a group without noise, by what each distance saves, as a share."""
    return {0: [1.0] * 6} | {int(name[1:]): [1.0 - share] * 3 for name, share in saved.items()}


@pytest.mark.parametrize(
    ("saved", "step"),
    [
        # 64 channels: 8 fewer should save 12.5 %, and more than half of that says that they do.
        ({"d1": 0, "d2": 0, "d4": 0, "d8": 0.064, "d16": 0.2, "d32": 0.4}, 8),
        ({"d1": 0, "d2": 0, "d4": 0, "d8": 0.061, "d16": 0.2, "d32": 0.4}, 16),
        # If even 32 fewer channels save less than that, the width makes no difference.
        ({"d1": 0, "d2": 0, "d4": 0, "d8": 0.01, "d16": 0.03, "d32": 0.061}, 8),
        ({"d1": 0, "d2": 0, "d4": 0, "d8": 0.01, "d16": 0.03, "d32": 0.064}, 32),
        # Fewer channels that take longer are as bad as fewer channels that save nothing.
        ({"d1": 0, "d2": 0, "d4": 0, "d8": -0.2, "d16": 0.0, "d32": 0.0}, 32),
    ],
)
def test_a_saving_is_compared_with_half_of_that_in_proportion(saved: dict[str, float], step: int) -> None:
    judged = step_of(ChannelGroup("a", 64, 1, ()), times(**saved))
    assert (judged.step, judged.is_decided) == (step, True)


def shaken(means: dict[int, list[float]], spread: float) -> dict[int, list[float]]:
    """The times of probes with a standard error of `spread` for each mean of three, and the same means."""
    return {distance: [value[0] * (1 + d * spread * 3**0.5) for d in (-1, 0, 1)] for distance, value in means.items()}


@pytest.mark.parametrize(("d16", "d32", "step"), [(0.25, 0.5, 16), (0, 0, 8)], ids=["blocks", "launch"])
def test_a_group_is_decided_from_the_noise_that_hides_no_saving(d16: float, d32: float, step: int) -> None:
    group = ChannelGroup("a", 64, 1, ())
    probes = times(d1=0, d2=0, d4=0, d8=0, d16=d16, d32=d32)
    limit = 0.5 * 8 / 64 / 5  # half of the saving in proportion of 8 channels is five standard errors
    quiet, noisy = (step_of(group, shaken(probes, factor * limit)) for factor in (0.99, 1.01))
    assert (quiet.step, quiet.is_decided) == (step, True)
    assert (noisy.step, noisy.is_decided, noisy.can_improve) == (8, False, True)


def test_widths_that_certainly_take_longer_are_decided_in_more_noise() -> None:
    probes = shaken(times(d1=0, d2=0, d4=0, d8=-0.5, d16=0.25, d32=0.5), 0.02)
    judged = step_of(ChannelGroup("a", 64, 1, ()), probes)
    assert (judged.step, judged.is_decided) == (16, True)  # the noise hides a saving of 6 %, but not a loss of 50 %


def test_a_small_group_must_be_decided_too() -> None:
    group = ChannelGroup("a", 16, 1, ())
    probes = times(d1=0.06, d2=0.12, d4=0.25, d8=0.5)
    quiet, noisy, very_noisy = (step_of(group, shaken(probes, spread)) for spread in (0.001, 0.0245, 0.12))
    assert (quiet.step, quiet.is_decided) == (1, True)
    assert (noisy.step, noisy.is_decided) == (4, True)
    assert (very_noisy.step, very_noisy.is_decided) == (8, False)


def test_groups_that_are_too_wide_to_be_decided_are_not_measured_again() -> None:
    graph = chain(4096)
    bench = FakeBench(graph, padded(16))
    steps = find_steps(bench, graph)
    assert (steps, steps.undecided) == ({"conv0": 8}, ("conv0",))  # 8 of 1024 channels are below the least noise
    assert len(bench.measured) == 3 * 8


@pytest.mark.parametrize(
    "damaged",
    [
        None,
        [],
        {"undecided": []},
        {"steps": {"a": 0}, "undecided": []},
        {"steps": {"a": True}, "undecided": []},
        {"steps": {"a": 8}, "undecided": ["b"]},
        {"steps": {"a": 8}, "undecided": {}},
    ],
)
def test_what_is_no_record_of_steps_is_rejected(damaged: object) -> None:
    with pytest.raises(aacp.RunMismatch, match=r"x\.steps does not hold steps\. Remove it"):
        FoundSteps.from_json(damaged, "x.steps")


def test_steps_are_read_as_they_were_written() -> None:
    steps = FoundSteps({"a": 8, "b": 16}, ["a"])
    found = FoundSteps.from_json(json.loads(json.dumps(steps.to_json())), "x.steps")
    assert (found, found.undecided) == (steps, ("a",))
    for older in ({"steps": {"a": 8}}, {"a": 8}):
        found = FoundSteps.from_json(older, "x.steps")
        assert (found, found.undecided) == ({"a": 8}, ())


def test_steps_are_found_once_and_not_used_for_another_network_or_setting(tmp_path: Path) -> None:
    folder, graph = aacp.RunFolder(tmp_path), chain(4, 6, 1)
    steps = FoundSteps({group.name: 2 for group in graph.free})

    def never() -> FoundSteps:
        raise AssertionError("the steps are known")

    for setting in (None, {"device": "npu"}):
        name = f"{setting}.steps"
        assert kept_steps(folder, name, graph, lambda: steps, setting) is steps
        assert kept_steps(folder, name, graph, never, setting) == steps
        for other in ((chain(4, 6, 8, 1), setting), (graph, {"device": "gpu"})):
            with pytest.raises(aacp.RunMismatch, match="holds steps of another network or setting"):
                kept_steps(folder, name, other[0], never, other[1])


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
