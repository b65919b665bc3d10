"""A run states the memory and energy of both networks if that is requested, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import aacp
from aacp.latency.resources import ResourceUse
from aacp.pipeline import delivery
from aacp.runs.exports import Resources
from latency.simulator import FileSimulator
from pipeline.tiny_run import EXPORTING, PLAN, pruned

REQUESTED = replace(EXPORTING, recipe=None, reconstruction=None, resources=True)
USED = {"original.onnx": ResourceUse(4_000_000, 0.002, "RAPL package-0"), "pruned.onnx": ResourceUse(3_000_000, 0.001)}


@pytest.mark.slow
def test_memory_and_energy_are_measured_once_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def fail(*_: Any) -> ResourceUse:
        raise aacp.WorkerFailed("The process was killed. Call again.")

    def measure(file: Path, example: Any, where: aacp.Deployment) -> ResourceUse:
        measured.append(file.name)
        return USED[file.name]

    monkeypatch.setattr(delivery, "measure_resources", fail)
    failed = pruned(tmp_path, plan=REQUESTED)
    assert failed.exported is not None  # the other results are complete without it
    assert "memory in" not in str(failed)
    monkeypatch.setattr(delivery, "measure_resources", measure)
    assert "memory in" not in str(pruned(tmp_path, plan=replace(REQUESTED, resources=False)))
    assert not measured
    for _ in range(2):
        found = pruned(tmp_path, plan=REQUESTED)
        assert measured == ["original.onnx", "pruned.onnx"]
        (line,) = [line for line in str(found).splitlines() if line.startswith("memory in onnxruntime")]
        assert line.endswith("4.0 MB -> 3.0 MB (-25.0%); energy of a batch: 2 -> 1 mJ (RAPL package-0)")
        page = found.report.read_text()
        assert "Memory in onnxruntime" in page
        assert "Energy of a batch, RAPL package-0" in page


def test_memory_is_stated_where_nothing_counts_energy() -> None:
    found = Resources("onnxruntime 1.31", 4_000_000, 3_000_000)
    assert str(found) == "memory in onnxruntime 1.31: 4.0 MB -> 3.0 MB (-25.0%); energy is not counted here"


def test_resources_that_cannot_be_measured_are_rejected_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(aacp.InvalidOption, match="measured with its exported file, but there is no export"):
        replace(PLAN, resources=True)
    where = aacp.Deployment(FileSimulator(), "npu", threads=1)
    with pytest.raises(aacp.InvalidOption, match="another process must find the runtime by its name"):
        pruned(tmp_path, plan=replace(REQUESTED, deployment=where))
    assert not list(tmp_path.iterdir())
