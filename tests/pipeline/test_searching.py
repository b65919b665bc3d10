"""The search as a stage of a run: what it says when it ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

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
