"""The search as a stage of a run: what it says when it ends."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aacp
from pipeline import tiny_run
from pipeline.tiny_run import PLAN, UNTRAINED, pruned


@pytest.mark.slow
def test_a_search_that_finds_no_other_structure_says_so_and_suggests_a_finer_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = pruned(tmp_path, plan=replace(UNTRAINED, pruning_step=1 / 2, evaluations=40), verbose=True)
    evaluated = len((tmp_path / "history.jsonl").read_text().splitlines())
    assert evaluated < 40
    assert found.choice.limits[0].holds
    said = capsys.readouterr().err
    assert f"The search ended after {evaluated} of 40 evaluations" in said
    assert "A finer step (--step, Plan.pruning_step)" in said


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, method="uniform")], ids=["complete", "one structure"])
def test_a_search_that_ends_as_planned_does_not(plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pruned(tmp_path, plan=replace(plan, recipe=None, evaluations=2), verbose=True)
    assert "The search ended" not in capsys.readouterr().err


@pytest.mark.parametrize("sign", [1, -1], ids=["higher is better", "lower is better"])
def test_a_score_that_grows_as_networks_get_worse_is_noticed(sign: int, caplog: pytest.LogCaptureFixture) -> None:
    """The score is the distance of a network's outputs from those of the unpruned one, or its negative."""
    torch.manual_seed(0)
    model = tiny_run.network().eval()
    inputs = torch.randn(24, 1, 8, 8)
    wanted = model(inputs).detach()

    def score(network: torch.nn.Module) -> float:
        return -sign * float((network(inputs) - wanted).square().mean())

    with caplog.at_level(logging.WARNING, logger="aacp"), torch.no_grad():
        aacp.find(model, inputs, {"macs": 0.4}, plan=replace(PLAN, evaluations=8), score=score, device="cpu")
    assert ("If a lower score is better, return its negative" in caplog.text) == (sign < 0)
