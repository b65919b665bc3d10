"""repeat: a function called with several seeds, whose results are collected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import aacp
from aacp.pipeline.plan import Plan
from aacp.report.repeats import repetitions_in


def scored(seed: int, folder: Path) -> dict[str, float]:
    return {"accuracy": 0.5 + 0.1 * seed}


def test_every_seed_has_a_folder_and_the_results_are_recorded(tmp_path: Path) -> None:
    asked = []

    def run(seed: int, folder: Path) -> dict[str, float]:
        asked.append((seed, folder))
        return scored(seed, folder)

    found = aacp.repeat(run, [2, 0], tmp_path, name="mine")
    assert asked == [(2, tmp_path / "seed-2"), (0, tmp_path / "seed-0")]
    assert found.spreads[""]["accuracy"].values == pytest.approx((0.7, 0.5))
    assert repetitions_in(tmp_path) == [found]
    assert (tmp_path / "repeat-mine.json").exists()
    assert "60.00 %" in (tmp_path / "report.html").read_text()


def test_progress_is_reported_on_demand_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    aacp.repeat(scored, [4, 7], tmp_path / "silent")
    assert capsys.readouterr().err == ""
    with aacp.show_progress():
        aacp.repeat(scored, [4, 7], tmp_path / "shown")
    expected = [f"{tmp_path / 'shown'}: seed 4, 1 of 2", f"{tmp_path / 'shown'}: seed 7, 2 of 2"]
    assert capsys.readouterr().err.splitlines() == expected


def test_a_seed_that_fails_does_not_lose_the_others(tmp_path: Path) -> None:
    def run(seed: int, folder: Path) -> dict[str, float]:
        if seed == 1:
            raise RuntimeError("out of memory\nsecond line")
        return scored(seed, folder)

    found = aacp.repeat(run, [0, 1, 2], tmp_path)
    assert [run.seed for run in found.finished] == [0, 2]
    assert [(run.seed, run.error) for run in found.failed] == [(1, "RuntimeError: out of memory")]
    assert "seed 1 failed. RuntimeError: out of memory" in (tmp_path / "report.html").read_text()


def test_an_interruption_keeps_the_seeds_that_are_done(tmp_path: Path) -> None:
    def run(seed: int, folder: Path) -> dict[str, float]:
        if seed == 1:
            raise KeyboardInterrupt
        return scored(seed, folder)

    with pytest.raises(KeyboardInterrupt):
        aacp.repeat(run, [0, 1], tmp_path)
    (found,) = repetitions_in(tmp_path)
    assert [run.seed for run in found.runs] == [0]


@pytest.mark.parametrize(("seeds", "words"), [([], "no seeds"), ([3, 1, 3], "contain 3 more than once")])
def test_seeds_must_differ(seeds: list[int], words: str, tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match=words):
        aacp.repeat(scored, seeds, tmp_path / "never")
    assert not (tmp_path / "never").exists()


@pytest.mark.slow
def test_runs_of_prune_are_compared_by_the_numbers_of_their_folders(model, data, tmp_path: Path) -> None:
    plan = Plan(evaluations=3, calibration_images=64, recipe=None, reconstruction=None, export=False)

    def run(seed: int, folder: Path) -> aacp.Pruned:
        return aacp.prune(model, data, {"macs": 0.5}, folder, plan=replace(plan, seed=seed), name="digits_resnet")

    found = aacp.repeat(run, [0, 1], tmp_path)
    places = [tmp_path / f"seed-{seed}" / "trainings" / "untrained" for seed in (0, 1)]
    records = [aacp.RunFolder(place).read_json("evaluation.json") for place in places]
    spreads = found.spreads[""]
    assert spreads["test accuracy after"].values == tuple(record["after"]["test"] for record in records)
    assert spreads["MACs after"].mean == sum(record["after"]["macs"] for record in records) / 2
    page = (tmp_path / "report.html").read_text()
    assert "Over seeds" in page
    assert "All runs" in page


@pytest.mark.slow
def test_a_repeated_sweep_has_a_group_for_each_budget(model, data, tmp_path: Path) -> None:
    plan = Plan(evaluations=2, calibration_images=64, recipe=None, reconstruction=None)
    budgets = [{"macs": 0.3}, {"macs": 0.6}]

    def run(seed: int, folder: Path) -> aacp.Sweep:
        return aacp.sweep(model, data, budgets, folder, plan=replace(plan, seed=seed), name="digits_resnet")

    found = aacp.repeat(run, [0, 1], tmp_path)
    assert list(found.spreads) == ["macs-0.3", "macs-0.6"]
    assert all(value <= 0.4 for value in found.spreads["macs-0.6"]["MACs, share of before"].values)
    assert "seed-1/macs-0.6" in (tmp_path / "report.html").read_text()
