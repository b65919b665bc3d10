"""A structure is compared with a limit by intervals, on a simulated machine (runtimes/ tests real ones)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import aacp
from aacp.latency.check import LatencyCheck, Verdict
from aacp.latency.timing import MAX_LOOKS, MAX_SECONDS, MedianInterval
from latency.simulator import Simulator

SECONDS = MedianInterval(0.9, 1.0, 1.2)
ORIGINAL = MedianInterval(2.0, 2.0, 2.0)


def check_of(ratio: MedianInterval, seconds: MedianInterval = SECONDS) -> LatencyCheck:
    return LatencyCheck(aacp.Structure([1]), seconds, ratio, ORIGINAL)


def test_faster_means_that_the_whole_interval_is() -> None:
    assert check_of(MedianInterval(0.8, 0.9, 0.99)).is_faster
    assert not check_of(MedianInterval(0.8, 0.9, 1.01)).is_faster


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [
        (aacp.Limit("latency", at_most=1.2), Verdict.MET),
        (aacp.Limit("latency", at_most=1.19), Verdict.UNDECIDED),  # the median meets it
        (aacp.Limit("latency", at_most=0.9), Verdict.UNDECIDED),
        (aacp.Limit("latency", at_most=0.89), Verdict.MISSED),
        (aacp.Limit("latency", pruning_rate=0.3), Verdict.MET),
        (aacp.Limit("latency", pruning_rate=0.45), Verdict.UNDECIDED),
        (aacp.Limit("latency", pruning_rate=0.6), Verdict.MISSED),
    ],
)
def test_only_an_interval_on_one_side_of_a_limit_decides(limit: aacp.Limit, verdict: Verdict) -> None:
    assert check_of(MedianInterval(0.5, 0.55, 0.65)).verdict(limit) is verdict


class BusyMachine(Simulator):
    """A machine on which other work slows every run down by another factor."""

    name = "busy"

    def __init__(self, noise: float) -> None:
        super().__init__()
        self.noise, self.generator = noise, np.random.default_rng(0)

    def prepare(self, network: nn.Module | Path, example: Any, *, device: str, threads: int) -> Callable[[], object]:
        run = super().prepare(network, example, device=device, threads=threads)

        def disturbed() -> None:
            before = self.seconds
            run()
            self.seconds += (self.seconds - before) * np.expm1(self.noise * abs(self.generator.standard_normal()))

        return disturbed


MODEL = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Conv2d(32, 4, 3)).eval()
EXAMPLE = torch.zeros(1, 3, 24, 24)
GRAPH = aacp.trace(MODEL, EXAMPLE)
HALF = aacp.Structure([count // 2 for count in GRAPH.full])


def checked_on(noise: float, limit: aacp.Limit | None = None) -> tuple[LatencyCheck, float]:
    """The measurement of a structure on a noisy machine, and the seconds that it took there."""
    machine = BusyMachine(noise)
    where = aacp.Deployment(machine, "npu")
    (checked,) = aacp.check_latency(MODEL, GRAPH, [HALF], where, example=EXAMPLE, limit=limit)
    return checked, machine.seconds


@pytest.fixture(scope="module")
def ratio() -> float:
    """The true ratio of the structure's time to the original's."""
    return checked_on(0.0)[0].ratio.median


def test_a_noisy_machine_never_meets_a_limit_that_is_nearly_reached(ratio: float) -> None:
    """The structure keeps to the limit by 3 %, which this noise hides: the check takes all its time and cannot tell."""
    limit = aacp.Limit("latency", pruning_rate=1 - 1.03 * ratio)
    quiet, quiet_seconds = checked_on(0.001, limit)
    assert quiet.verdict(limit) is Verdict.MET
    noisy, noisy_seconds = checked_on(3.0, limit)
    assert noisy.verdict(limit) is Verdict.UNDECIDED
    assert noisy_seconds >= min(MAX_SECONDS, MAX_LOOKS * quiet_seconds)


def test_a_measurement_is_extended_until_the_limit_is_decided(ratio: float) -> None:
    limit = aacp.Limit("latency", pruning_rate=1 - 1.1 * ratio)
    at_first, _ = checked_on(0.5)
    decided, _ = checked_on(0.5, limit)
    assert at_first.verdict(limit) is Verdict.UNDECIDED
    assert decided.verdict(limit) is Verdict.MET


def test_a_structure_over_the_limit_is_found_so_on_a_noisy_machine_too(ratio: float) -> None:
    limit = aacp.Limit("latency", pruning_rate=1 - 0.5 * ratio)
    assert checked_on(0.5, limit)[0].verdict(limit) is Verdict.MISSED


def test_the_original_of_the_same_turns_is_recorded() -> None:
    checked, _ = checked_on(0.0)
    assert checked.seconds.median == pytest.approx(checked.ratio.median * checked.original.median)


def test_printed_it_has_the_interval_of_the_seconds_and_that_of_the_ratio() -> None:
    """The medians are of different turns: 2 ms are not half of 5 ms. The limit decides which interval counts."""
    seconds, ratio = MedianInterval(1e-3, 2e-3, 3e-3), MedianInterval(0.4, 0.5, 0.6)
    original = MedianInterval(4e-3, 5e-3, 6e-3)
    text = "2 ms (1 ms to 3 ms), the original's 5 ms; 0.5 (0.4 to 0.6) of it in the median turn"
    assert str(LatencyCheck(aacp.Structure((1,)), seconds, ratio, original)) == text


def test_the_advice_about_a_slow_structure_names_turns_in_which_the_original_varied() -> None:
    assert check_of(MedianInterval(0.9, 0.9, 0.9)).remedy == "Loosen the limit"
    varied = LatencyCheck(aacp.Structure([1]), SECONDS, SECONDS, MedianInterval(1.0, 2.0, 4.0))
    assert varied.remedy == (
        "Close other programs, since the unpruned network itself took from 1,000 ms to 4,000 ms in this measurement, "
        "or loosen the limit"
    )
