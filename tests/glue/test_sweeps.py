"""A sweep passes on what it is given: score, loss, and the structures that are already final."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from torch import nn

import aacp
from aacp.cli import main
from glue.recorder import Recorder
from glue.subjects import data
from glue.test_reuse import PLAN, smallness


@pytest.mark.slow
def test_score_and_loss_of_a_sweep_are_used_in_its_runs(model: nn.Module, recipe: aacp.Recipe, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "macs-0.5", model)  # the folder of the only run
    plan = replace(PLAN, evaluations=2, recipe=recipe)
    with recorder.recording():
        aacp.sweep(
            model, recorder.data, [{"macs": 0.5}], tmp_path, plan=plan, train=True, score=recorder.score,
            loss=recorder.loss, device="cpu",
        )  # fmt: skip
    passes = recorder.passes()
    assert passes["search"]["score pruned"] == {"holdout"}
    assert passes["delivery"]["score pruned"] == {"holdout"}
    assert passes["evaluation"] == {"score pruned": {"holdout", "test"}}
    assert recorder.losses["delivery"] > 0


@pytest.mark.slow
def test_equal_budgets_share_a_run_and_one_that_is_met_is_accepted(model: nn.Module, tmp_path: Path) -> None:
    budgets = [{"macs": 0.0}, {"macs": 0.5}, {"macs": 0.5}]
    plan = replace(PLAN, evaluations=2)
    found = aacp.sweep(model, data(), budgets, tmp_path, plan=plan, score=smallness, device="cpu")
    assert [folder.path.name for folder in found.folders] == ["macs-0", "macs-0.5"]
    first, second = found.folders
    assert second.read_json("run.json")["known_from"] == [str(first.path)]  # whose evaluations it reuses
    assert not list(tmp_path.rglob("pruned.safetensors"))  # without `train` it only searches


@pytest.mark.slow
def test_a_sweep_limits_channels_with_tied_groups(model: nn.Module, tmp_path: Path) -> None:
    plan = replace(PLAN, evaluations=2, tie=(("conv1", "conv3"),))
    budgets = [{"channel_count": 0.2, "macs": 0.5}, {"channel_count": 0.5, "macs": 0.5}]
    found = aacp.sweep(model, data(), budgets, tmp_path, plan=plan, score=smallness, device="cpu")
    for share, choice in zip((0.8, 0.5), found.choices, strict=True):
        conv1, stream, conv3 = choice.counts
        assert conv1 / 8 == conv3 / 16
        assert conv1 + 2 * stream + conv3 <= share * (8 + 16 + 16 + 16)
    assert "Channels" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_network_that_was_delivered_keeps_its_structure(
    model: nn.Module, recipe: aacp.Recipe, tmp_path: Path
) -> None:
    """A later search finds a better structure within the first budget, but that network is already trained."""
    plan = replace(PLAN, evaluations=2, recipe=replace(recipe, distillation=0.0, epochs=1))
    settings = {"plan": plan, "train": True, "score": smallness, "device": "cpu"}
    first = aacp.sweep(model, data(), [{"macs": 0.1}], tmp_path, **settings)
    both = aacp.sweep(model, data(), [{"macs": 0.1}, {"macs": 0.8}], tmp_path, **settings)
    assert both.choices[1].score > first.choices[0].score  # or this shows nothing
    assert both.choices[0] == first.choices[0]


def test_the_command_ends_with_the_page_or_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    search = ("glue.subjects:tiny", "--data", "glue.subjects:data", "--evaluations", "1", "--calibration", "16")
    given = ["sweep", *search, "--prune-macs", "0.3,0.5", "--device", "cpu", "--run", str(tmp_path)]
    printed = CliRunner().invoke(main, given).stdout
    assert printed.splitlines()[-1] == f"report: {tmp_path / 'report.html'}"
    found = json.loads(CliRunner().invoke(main, [*given, "--json"]).stdout)
    assert (found["report"], found["no_report"]) == (str(tmp_path / "report.html"), "")
    assert Path(found["report"]).is_file()

    def fail(*_: object) -> None:
        raise aacp.DiskError("The disk is full. Free some space.")

    monkeypatch.setattr("aacp.pipeline.reporting.write_report", fail)
    assert CliRunner().invoke(main, given).stdout.endswith("\nno report: The disk is full. Free some space.\n")
