"""Pruned: the text that is printed at the end of a run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import aacp
from aacp.pipeline.pruned import Pruned
from aacp.runs.chosen import ChosenStructure, LimitResult
from aacp.runs.exports import BeforeAfter, ExportRecord, Latency, RuntimeFiles
from aacp.runs.requests import TrainingRequest
from aacp.runs.scores import Evaluation, NetworkMetrics

BEFORE, AFTER = (
    NetworkMetrics(0.934, 0.94, {"macs": 1_000_000, "params": 500, "activation_bytes": 100, "energy": 2.5}),
    NetworkMetrics(0.937, None, {"macs": 499_000, "params": 260, "activation_bytes": 80, "energy": 1.2500000001}),
)
LIMITS = (
    LimitResult("params", "parameters", None, 300, 500, 300, 260),
    LimitResult("energy", "J", 0.4, None, 2.5, 1.5, 1.2500000001),
    LimitResult("latency", "s", None, 0.004, 0.008, 0.004, 0.003),
)


@pytest.fixture(scope="module")
def graph() -> aacp.ChannelGraph:
    """Of a network with two free groups: 8 channels that a norm divides into 4 units of 2, and 6 channels."""
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.GroupNorm(2, 8), nn.Conv2d(8, 6, 1), nn.Conv2d(6, 5, 1))
    return aacp.trace(network, torch.randn(1, 3, 4, 4))


@pytest.fixture
def pruned(tmp_path: Path, graph: aacp.ChannelGraph) -> Pruned:
    exported = ExportRecord(18, 0.0, 10, 5, ())
    folder = aacp.RunFolder(tmp_path / "run")
    return Pruned(
        torch.nn.Identity(),
        graph,
        ChosenStructure((1, 2), 0.9, LIMITS),
        Evaluation(BEFORE, AFTER),
        exported,
        folder,
        aacp.RunFolder(tmp_path / "run" / "trainings" / "finetuned"),
    )


def test_it_says_what_changed_and_where_everything_is(pruned: Pruned, tmp_path: Path) -> None:
    assert str(pruned).splitlines() == [
        "macs: 1,000,000 -> 499,000 MACs (-50.1%)",
        "params: 500 -> 260 parameters (-48.0%), at most 300 parameters",
        "activation_bytes: 100 -> 80 bytes (-20.0%)",
        "energy: 2.5 -> 1.25 J (-50.0%), at most 1.5 J",
        "latency: 8 -> 3 ms (-62.5%), at most 4 ms",
        "test score: 0.9340 -> 0.9370",
        "kept: [2, 2]",
        f'network: aacp.load("{tmp_path}/run/trainings/finetuned/pruned.safetensors", into=MODEL)',
        f"ONNX: {tmp_path}/run/trainings/finetuned/pruned.onnx",
        f"report: {tmp_path}/run/report.html",
    ]
    assert "ONNX" not in str(replace(pruned, exported=None))


def test_the_same_is_there_as_plain_data(pruned: Pruned, tmp_path: Path) -> None:
    timing = BeforeAfter(
        "torch 2, 1 thread", "cpu", 4, 20, Latency(0.008, 0.007, 0.009), Latency(0.004, 0.0039, 0.0041), 1.9, 2.1, 2.0
    )
    others = (RuntimeFiles("pruned.xml", "OpenVINO", 0.0, 100, 70),)
    pruned.folder.write_text("report.html", "")
    found = replace(pruned, exported=ExportRecord(18, 0.0, 10, 5, (timing,), others)).to_json()
    assert json.loads(json.dumps(found)) == found
    before = {"test": 0.934, "holdout": 0.94, "macs": 1_000_000, "params": 500, "activation_bytes": 100, "energy": 2.5}
    assert found["before"] == {**before, "file_bytes": None}
    assert (found["after"]["test"], found["after"]["holdout"]) == (0.937, None)
    words = ("cost", "unit", "requested", "reached", "original", "outcome")
    assert [tuple(limit[word] for word in words) for limit in found["limits"]] == [
        ("params", "parameters", 300, 260, 500, "met"),
        ("energy", "J", 1.5, 1.2500000001, 2.5, "met"),
        ("latency", "s", 0.004, 0.003, 0.008, "met"),
    ]
    (latency,) = found["latency"]
    assert latency["before"] == {"seconds": 0.008, "low_seconds": 0.007, "high_seconds": 0.009}
    assert latency["after"] == {"seconds": 0.004, "low_seconds": 0.0039, "high_seconds": 0.0041}
    assert (latency["speedup"], latency["verdict"], latency["batch_size"]) == (2.0, "faster", 4)
    training = f"{tmp_path}/run/trainings/finetuned"
    assert (found["folder"], found["kept"], found["estimate"]) == (f"{tmp_path}/run", [2, 2], 0.9)
    assert found["files"] == {
        "network": f"{training}/pruned.safetensors",
        "exported": [
            {"format": "ONNX", "precision": "float32", "file": f"{training}/pruned.onnx"},
            {"format": "OpenVINO", "precision": "float32", "file": f"{training}/pruned.xml"},
        ],
        "check": None,
        "report": f"{tmp_path}/run/report.html",
    }
    lost = replace(pruned, exported=None, unexported="no ONNX", unreported="no plotly").to_json()
    assert (lost["no_export"], lost["no_report"]) == ("no ONNX", "no plotly")
    assert (lost["files"]["exported"], lost["files"]["report"], lost["latency"]) == ([], None, [])


def test_it_names_the_file_of_the_deployments_runtime(pruned: Pruned, tmp_path: Path) -> None:
    others = (RuntimeFiles("pruned.xml", "OpenVINO", 0.0, 100, 70),)
    exported = ExportRecord(18, 0.0, 10, 5, (), others=others)
    lines = str(replace(pruned, exported=exported)).splitlines()
    assert f"OpenVINO: {tmp_path}/run/trainings/finetuned/pruned.xml" in lines


def test_it_can_be_shown_after_its_folder_is_gone(pruned: Pruned) -> None:
    pruned.folder.write_text("report.html", "")
    shown = str(pruned)
    shutil.rmtree(pruned.folder.path)
    assert str(pruned) == shown


def test_it_warns_of_a_training_that_lowered_the_score(pruned: Pruned) -> None:
    lower = replace(pruned, evaluation=Evaluation(BEFORE, replace(AFTER, holdout=0.5)))
    warning = "Training lowered the score: 90.0 % on held-out data before training, 50.0 % after it."
    lower.training.write_json("training.json", TrainingRequest("", None, {}, "", "").to_json())
    assert warning not in str(lower).replace("\N{NO-BREAK SPACE}", " ")
    lower.training.write_json("training.json", TrainingRequest("", {}, {}, "", "").to_json())
    assert warning in str(lower).replace("\N{NO-BREAK SPACE}", " ")


def test_neither_the_graph_nor_the_history_is_read_to_show_it(pruned: Pruned, monkeypatch: pytest.MonkeyPatch) -> None:
    pruned.folder.write_json("run.json", {})
    read: list[str] = []
    for reader in ("read_json", "read_log"):
        monkeypatch.setattr(aacp.RunFolder, reader, lambda folder, name: read.append(name))
    str(pruned)
    assert set(read) == {"run.json", "finalists.json", "device.json", "recovery.json"}
