"""Repetition: means, deviations and failures of runs with several seeds."""

from __future__ import annotations

import json

import numpy as np
import pytest

from aacp.runs.chosen import ChosenStructure, LimitResult
from aacp.runs.exports import BeforeAfter, ExportRecord, Latency
from aacp.runs.repeats import Repetition, SeedRun, Spread, choice_metrics, evaluation_metrics
from aacp.runs.scores import Evaluation, NetworkMetrics

THREE = Repetition(
    "prune",
    (
        SeedRun(0, "seed-0", {"": {"test accuracy after": 0.90, "MACs after": 51_000}}),
        SeedRun(4, "seed-4", {}, "InvalidOption: no such thing"),
        SeedRun(7, "seed-7", {"": {"test accuracy after": 0.93, "MACs after": 49_000}}),
    ),
    {"command": "prune", "prune_macs": "0.5"},
)


def test_the_deviation_is_that_of_a_sample() -> None:
    values = [0.931, 0.934, 0.9375, 0.92]
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.deviation == pytest.approx(np.std(values, ddof=1))
    assert spread.values == tuple(values)


def test_a_single_seed_has_no_deviation() -> None:
    assert Spread.of([0.5]) == Spread(0.5, None, (0.5,))


def test_a_failed_seed_is_named_and_counts_in_no_mean() -> None:
    spread = THREE.spreads[""]["test accuracy after"]
    assert spread.values == (0.90, 0.93)
    assert [run.seed for run in THREE.failed] == [4]
    assert "seed 4 failed: InvalidOption: no such thing" in str(THREE)
    assert "2 of 3 seeds finished" in str(THREE)


def test_a_metric_that_one_seed_lacks_is_averaged_over_the_others() -> None:
    runs = (SeedRun(0, "a", {"": {"held-out": 1.0, "test": 2.0}}), SeedRun(1, "b", {"": {"test": 4.0}}))
    found = Repetition("run", runs, {})
    assert {name: spread.mean for name, spread in found.spreads[""].items()} == {"held-out": 1.0, "test": 3.0}
    row = next(line.split() for line in str(found).splitlines() if line.startswith("held-out"))
    assert row == ["held-out", "1", "-", "1", "-"]


def test_the_table_shows_percent_and_every_value() -> None:
    row = next(line for line in str(THREE).splitlines() if line.startswith("test accuracy after"))
    assert row.split() == ["test", "accuracy", "after", "91.50", "%", "2.12", "%", "90.00", "%", "93.00", "%"]
    assert "50,000" in str(THREE)


def test_it_is_read_back_from_json_which_holds_the_means() -> None:
    written = json.loads(json.dumps(THREE.to_json()))
    assert Repetition.from_json(written) == THREE
    assert written["spreads"][""]["MACs after"] == {
        "mean": 50_000,
        "deviation": pytest.approx(1414.2, abs=0.1),
        "values": [51_000, 49_000],
    }


def test_the_metrics_of_a_run_are_scores_costs_and_the_ratio_of_times() -> None:
    before = NetworkMetrics(0.92, None, {"macs": 1000, "params": 80})
    after = NetworkMetrics(0.90, 0.91, {"macs": 400, "params": 20})
    timing = BeforeAfter("torch", "cpu", 8, 5, Latency(0.4, 0.3, 0.5), Latency(0.1, 0.1, 0.1))
    found = evaluation_metrics(Evaluation(before, after), ExportRecord(18, 0.0, 9, 8, (timing,)), "accuracy")
    assert found == pytest.approx(
        {
            "test accuracy before": 0.92,
            "test accuracy after": 0.90,
            "test accuracy gained": -0.02,
            "held-out accuracy after": 0.91,
            "MACs after": 400,
            "MACs, share of before": 0.4,
            "parameters after": 20,
            "parameters, share of before": 0.25,
            "latency, share of before (torch on cpu, batch 8)": 0.25,
        }
    )


def test_the_metrics_of_a_search_are_its_estimate_and_the_limited_costs() -> None:
    limit = LimitResult("macs", "", 0.5, None, 1000.0, 500.0, 450.0)
    found = choice_metrics(ChosenStructure((3, 4), 0.8, (limit,)), "iou")
    assert found == {"estimated iou": 0.8, "MACs after": 450.0, "MACs, share of before": 0.45}
