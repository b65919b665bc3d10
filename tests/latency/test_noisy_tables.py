"""A table of a noisy machine is measured longer or rejected, on a simulated clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aacp
from aacp.latency.calibration import PredictionError
from aacp.latency.judging import MAX_MEDIAN_ERROR, MAX_NOISE, MIN_RANK_CORRELATION, shortcomings
from aacp.latency.measure import EXTRA_ROUNDS, measure_table, spread_structures
from aacp.latency.pieces import TimedStructure
from aacp.latency.table import LatencyTable
from aacp.latency.timers import time_in_turns
from latency_bench import SETTING, FakeBench, chain, proportional

GRAPH = chain(16, 32, 32)
SPACE = aacp.SearchSpace(GRAPH, 1 / 4)
PLAN = spread_structures(SPACE, 16, 0), spread_structures(SPACE, 8, 1, ends=False)
PLANNED = 16 + 8
QUIET = 0.001
BUSY = 3.0  # the logarithm of a typical slowdown


class NoisyPieces:
    """A network whose every run takes its seconds times a random factor of the bench."""

    def __init__(self, bench: NoisyBench, seconds: Sequence[float]) -> None:
        self.bench, self.seconds, self.recorded = bench, np.array(seconds), []

    def run(self) -> None:
        self.bench.now += 0.8 * self.seconds.sum() * self.bench.factor()

    def run_timed(self) -> None:
        self.recorded.append((self.seconds * self.bench.factor()).tolist())
        self.bench.now += sum(self.recorded[-1])

    def take_recorded(self) -> list[list[float]]:
        return self.recorded


class NoisyBench(FakeBench):
    """Times structures in turns on a clock of its own; `noises` is the noise of each structure in turn."""

    def __init__(self, *noises: float) -> None:
        super().__init__(GRAPH, proportional)
        self.now, self.noises = 0.0, noises

    def factor(self) -> float:
        noise = self.noises[min(len(self.measured), len(self.noises)) - 1]
        return float(np.exp(noise * abs(self.generator.standard_normal())))  # other work only adds time

    def __call__(self, structure: aacp.Structure) -> TimedStructure:
        self.measured.append(structure)
        subject, unpruned = (NoisyPieces(self, self.pieces_seconds(s)) for s in (structure, GRAPH.full))
        return time_in_turns(structure, subject, unpruned, 0.0, lambda: self.now)


def measured(bench: NoisyBench, file: Path | None = None, **options: bool) -> LatencyTable:
    return measure_table(bench, GRAPH, SPACE, SETTING, PLAN, file, **options)


def test_a_quiet_machine_measures_each_structure_once() -> None:
    bench = NoisyBench(QUIET)
    assert measured(bench).problem == ""
    assert len(bench.measured) == PLANNED


@pytest.mark.slow
def test_a_machine_that_stays_noisy_measures_longer_and_then_gets_no_table(tmp_path: Path) -> None:
    bench = NoisyBench(BUSY)
    varied = r"the unpruned network itself took from [\d.]+ ms to [\d.]+ ms .* other programs or a changing clock"
    options = "aacp measure with more --seconds .*--accept-noise"  # aacp prune has neither option
    advice = f"{varied}.* Close other programs.* larger batch, .*{options}"
    with pytest.raises(aacp.InconclusiveMeasurement, match=rf"uncertain by \d+\.\d%, at most 5% .* {advice}"):
        measured(bench, tmp_path / "table.json")
    assert len(bench.measured) == PLANNED + EXTRA_ROUNDS * PLANNED / 4
    assert not (tmp_path / "table.json").exists()
    assert len((tmp_path / "table.json.log").read_text().splitlines()) == 1 + len(bench.measured)  # nothing is lost


def test_a_machine_that_becomes_quiet_gets_its_table_from_the_structures_that_are_measured_again() -> None:
    bench = NoisyBench(*[BUSY] * PLANNED, QUIET)
    table = measured(bench)
    assert PLANNED < len(bench.measured) <= 2 * PLANNED
    assert table.problem == ""
    assert table.error.rank_correlation >= MIN_RANK_CORRELATION


@pytest.mark.slow
def test_the_noisiest_structures_are_measured_again_first() -> None:
    """Two structures of three are disturbed: more than half, so that the typical uncertainty is high."""
    disturbed = [number % 3 != 0 for number in range(PLANNED)]
    bench = NoisyBench(*(BUSY if noisy else QUIET for noisy in disturbed), QUIET)
    measured(bench)
    noisy = {structure for structure, is_noisy in zip(bench.measured, disturbed, strict=False) if is_noisy}
    again = bench.measured[PLANNED:]
    assert again
    assert set(again) <= noisy


@pytest.mark.slow
def test_the_same_call_continues_a_rejected_measurement(tmp_path: Path) -> None:
    with pytest.raises(aacp.InconclusiveMeasurement):
        measured(NoisyBench(BUSY), tmp_path / "table.json")
    later = NoisyBench(QUIET)
    table = measured(later, tmp_path / "table.json")
    assert 0 < len(later.measured) <= PLANNED
    assert LatencyTable.load(tmp_path / "table.json").to_json() == table.to_json()
    third = NoisyBench(BUSY)
    assert measured(third, tmp_path / "table.json").to_json() == table.to_json()
    assert third.measured == []


@pytest.mark.slow
def test_a_noisy_table_can_be_accepted_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = NoisyBench(BUSY)
    table = measured(bench, tmp_path / "table.json", accept_noise=True)
    assert len(bench.measured) == PLANNED
    assert "cannot decide anything: " in str(table)
    loaded = LatencyTable.load(tmp_path / "table.json")
    caplog.clear()
    loaded.require_decisive()
    assert "cannot decide anything, but was accepted" in caplog.text
    data = json.loads((tmp_path / "table.json").read_text())
    del data["accepts_noise"]  # a file of an older version
    with pytest.raises(aacp.InconclusiveMeasurement):
        LatencyTable.from_json(data).require_decisive()


class SlowBench(FakeBench):
    """Measures without noise, but the first structures on a machine whose other work hides what their widths take."""

    def __init__(self, slow: int) -> None:
        super().__init__(GRAPH, proportional)
        self.slow = slow

    def __call__(self, structure: aacp.Structure) -> TimedStructure:
        self.measured.append(structure)
        is_slow = len(self.measured) <= self.slow
        busy = 10.0 + self.generator.random() if is_slow else 1.0
        full = self.whole(GRAPH.full)
        whole = self.generator.permutation([0.5, 1.0])[0] * full if is_slow else self.whole(structure)
        seconds = self.pieces_seconds(structure), float(self.pieces_seconds(GRAPH.full).sum())
        pieces = tuple((busy * seconds[0]).tolist())
        return TimedStructure(tuple(structure), busy * whole, busy * full, pieces, busy * seconds[1], QUIET)


def test_what_was_measured_while_the_machine_was_slow_is_measured_again_even_without_noise() -> None:
    bench = SlowBench(PLANNED * 3 // 4)
    table = measured(bench)
    assert set(bench.measured[PLANNED:]) <= set(bench.measured[: bench.slow])
    assert len(bench.measured) > PLANNED
    assert table.problem == ""


def test_a_machine_that_was_slow_for_a_while_is_named_where_all_structures_seem_to_take_as_long() -> None:
    table = measured(SlowBench(PLANNED // 2), accept_noise=True)
    alike = replace(table, measured=tuple(replace(run, whole=run.reference) for run in table.measured))
    assert alike.warning is not None
    assert "the unpruned network itself took from" in alike.warning
    assert "starting layers" not in alike.warning
    steady = tuple(replace(run, whole=1.0, reference=1.0) for run in table.measured)
    launches = replace(table, measured=steady, held_out=())
    assert "starting layers" in str(launches.warning)


def error_of(median: float = 0.02, rank: float = 0.98, noise: float = 0.01, structures: int = 10) -> PredictionError:
    return PredictionError(structures, median, 0.1, rank, noise)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (error_of(), []),
        (error_of(median=0.04, rank=0.915, noise=0.02), []),  # MobileNetV2 on a busy machine, still of use
        (error_of(rank=0.10), ["rank correlation is 0.100"]),
        (error_of(noise=2.1), ["uncertain by 210.0%"]),
        (error_of(median=0.114, rank=0.54), ["rank correlation is 0.540", "median error is 11.4%"]),  # a starved GPU
        # Rounded further, these would be the thresholds themselves.
        (error_of(0.102, 0.749, 0.052), ["is 0.749, at least 0.75", "is 10.2%, at most 10%", "by 5.2%, at most 5%"]),
        (error_of(rank=float("nan")), ["rank correlation is nan"]),
        (error_of(rank=0.1, noise=2.1, structures=4), []),  # too few to judge
    ],
)
def test_each_shortcoming_is_stated_with_its_number(error: PredictionError, words: list[str]) -> None:
    found = shortcomings(error)
    assert len(found) == len(words)
    assert all(word in sentence for word, sentence in zip(words, found, strict=True))


def test_a_value_at_a_threshold_is_good_enough() -> None:
    assert shortcomings(error_of(MAX_MEDIAN_ERROR, MIN_RANK_CORRELATION, MAX_NOISE)) == []


def test_a_network_whose_time_does_not_depend_on_its_widths_needs_no_ranking() -> None:
    assert shortcomings(error_of(rank=0.1), depends_on_widths=False) == []
    assert shortcomings(error_of(rank=0.1, median=0.2), depends_on_widths=False) != []


def test_a_measurement_of_a_much_slower_machine_does_not_count_beside_another() -> None:
    fast = TimedStructure((4,), 0.5, 1.0, (0.2, 0.3), 1.0, 0.1)
    slow = TimedStructure((4,), 9.9, 10.0, (6.0, 4.0), 10.0, 0.001)
    assert fast.merged(slow) == slow.merged(fast) == fast


def test_two_measurements_of_a_structure_are_weighted_by_their_certainty() -> None:
    sure = TimedStructure((4,), 0.5, 1.0, (0.2, 0.3), 1.0, 0.01)
    unsure = TimedStructure((4,), 1.08, 1.2, (0.6, 0.48), 1.2, 0.1)
    found = sure.merged(unsure)
    share = 100 / 101  # of the certain one: its uncertainty is a tenth, its weight hundred times as large
    assert found.reference == found.reference_pieces == 1.0
    assert found.whole == pytest.approx(share * 0.5 + (1 - share) * 0.9)
    assert found.pieces == pytest.approx((share * 0.2 + (1 - share) * 0.5, share * 0.3 + (1 - share) * 0.4))
    assert found.noise == pytest.approx(0.01 * share**0.5)
    assert unsure.merged(sure).whole == pytest.approx(found.whole)
