"""A report that cannot be written costs nothing but the report."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aacp
from aacp.pipeline import reporting
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.reporting import write_report_or_reason
from aacp.runs.chosen import ChosenStructure
from aacp.runs.scores import Evaluation, NetworkMetrics
from aacp.user.progress import show_progress

UNTRAINED = aacp.Plan(evaluations=1, recipe=None, export=False, calibration_images=16, method="random")


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "report.html")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyError("gone"), aacp.AACPError("None.")])
def test_whatever_happens_to_the_page_is_a_reason(tmp_path: Path, monkeypatch, error: Exception) -> None:
    def failing(*_: Any) -> None:
        raise error

    monkeypatch.setattr(reporting, "write_report", failing)
    assert write_report_or_reason(aacp.RunFolder(tmp_path))


@pytest.mark.slow
def test_a_disk_too_small_for_the_report_leaves_the_summary(model, data, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(reporting, "write_report", full_disk)
    with show_progress():
        found = aacp.prune(model, data, {"macs": 0.5}, tmp_path, plan=UNTRAINED)
    lines = str(found).splitlines()
    assert any(line.startswith("no report: OSError: [Errno 28] No space left on device") for line in lines)
    assert not any(line.startswith("report: ") for line in lines)
    assert "no report. OSError" in capsys.readouterr().err
    assert (found.training.path / "evaluation.json").exists()


def test_the_summary_names_the_report_or_the_reason(graph, tmp_path: Path) -> None:
    metrics = NetworkMetrics(0.9, 0.9, {"macs": 1, "params": 1})
    choice = ChosenStructure(graph.full.counts, 0.9, ())
    evaluation = Evaluation(metrics, metrics)
    folder = aacp.RunFolder(tmp_path)
    pruned = Pruned(None, graph, choice, evaluation, None, folder, folder)  # type: ignore[arg-type]
    assert f"report: {tmp_path / 'report.html'}" in str(pruned)
    assert "no report: a reason" in str(replace(pruned, unreported="a reason"))
