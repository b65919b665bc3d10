"""What int8 needs is rejected before the search, and what quantised networks are calibrated on is training data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp
from aacp.latency.runtimes.runtime import QuantizedFile
from aacp.latency.steps import FoundSteps
from aacp.pipeline import quantization
from aacp.pipeline.latency_stage import LatencyStage
from aacp.pipeline.plan import Plan
from aacp.pipeline.quantization import Quantization, calibration_inputs
from aacp.pipeline.task import PruningTask
from latency.own_int8 import OwnRuntime
from pipeline.tiny_run import PLAN, data, network

INT8 = aacp.Deployment(threads=1, precision="int8")


@pytest.fixture
def task() -> PruningTask:
    return PruningTask(network().eval(), data(), None, torch.device("cpu"))


@pytest.mark.parametrize(("requested", "most", "count"), [(16, 512, 16), (16, 4, 4), (100, 512, 32)])
def test_calibration_images_are_those_of_the_plan_up_to_a_number(
    task: PruningTask, requested: int, most: int, count: int
) -> None:
    found = torch.cat(calibration_inputs(task, Plan(calibration_images=requested), most))
    train = task.data.train.tensors[0]  # type: ignore[union-attr]
    assert len(found) == count
    assert all(any(torch.equal(image, other) for other in train) for image in found)


def searched(folder: Path, model: nn.Module, **changes: Any) -> None:
    plan = aacp.Plan(evaluations=4, calibration_images=8, recipe=None, reconstruction=None, **changes)
    aacp.find(model, data(), {"macs": 0.4}, folder, plan=plan, device="cpu")


IN_INT8 = aacp.Deployment(OwnRuntime(), precision="int8")
STEPS = {"conv1": 4, "conv2": 4}


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"deployment": IN_INT8}, 1),
        ({"deployment": IN_INT8, "pruning_step": 4}, 1),
        ({"deployment": IN_INT8, "pruning_step": "auto"}, 0),
        ({"deployment": IN_INT8, "pruning_step": STEPS}, 0),
        ({"deployment": aacp.Deployment(OwnRuntime())}, 0),
    ],
    ids=["default", "number", "auto", "mapping", "float"],
)
def test_a_search_in_int8_says_once_that_steps_can_be_found(
    changes: dict[str, Any],
    count: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("aacp.pipeline.latency_stage.discover_steps", lambda *_, **__: FoundSteps(STEPS))
    with aacp.show_progress():
        searched(tmp_path, network(), **changes)
    note = "fewer channels may make a network slower in int8: use widths at which the runtime is fast"
    advice = 'which --step auto (pruning_step="auto") finds on this machine'
    assert capsys.readouterr().err.count(f"{note}, {advice}") == count


def test_steps_that_cannot_be_found_here_are_not_advised(
    task: PruningTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = aacp.trace(task.model, task.example())
    stage = LatencyStage(task, graph, Plan(deployment=IN_INT8), aacp.RunFolder(tmp_path))
    assert stage.step_note
    monkeypatch.setattr(LatencyStage, "is_elsewhere", True)  # the table is of another device
    assert stage.step_note == ""


def test_a_search_says_which_steps_timing_did_not_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = FoundSteps(STEPS, ["conv2"])
    monkeypatch.setattr("aacp.pipeline.latency_stage.discover_steps", lambda *_, **__: found)
    with aacp.show_progress():
        searched(tmp_path, network(), deployment=IN_INT8, pruning_step="auto")
    assert capsys.readouterr().err.count(found.note) == 1
    assert json.loads((tmp_path / "steps.json").read_text()) == {"steps": STEPS, "undecided": ["conv2"]}


@pytest.mark.parametrize("known", [STEPS, {"steps": STEPS, "undecided": ["conv1"]}])
def test_steps_of_this_and_of_older_versions_are_read(task: PruningTask, tmp_path: Path, known: dict[str, Any]) -> None:
    (tmp_path / "steps.json").write_text(json.dumps(known))
    graph = aacp.trace(task.model, task.example())
    stage = LatencyStage(task, graph, Plan(deployment=IN_INT8, pruning_step="auto"), aacp.RunFolder(tmp_path))
    assert stage.find_steps() == STEPS
    assert bool(stage.step_note) == ("undecided" in known)


class Refusing(OwnRuntime):
    """A runtime whose converter raises when a network is quantised."""

    def quantized(self, images: Any) -> OwnRuntime:
        runtime = super().quantized(images)
        runtime.prepare_pieces = self.refuse  # type: ignore[method-assign]
        return runtime

    def refuse(self, *_: Any, **__: Any) -> Any:
        raise aacp.ExportFailed("The operator Warp cannot be quantised. Use the precision float32.")


def test_an_operator_that_cannot_be_quantised_is_named_before_anything_is_evaluated(tmp_path: Path) -> None:
    with pytest.raises(aacp.ExportFailed, match="The operator Warp cannot be quantised"):
        searched(tmp_path, network(), deployment=aacp.Deployment(Refusing(), precision="int8"))
    assert not (tmp_path / "history.jsonl").exists()


def test_a_network_in_double_precision_is_rejected_before_anything_is_evaluated(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    part = (torch.randn(8, 1, 8, 8).double(), torch.arange(8) % 4)
    plan = aacp.Plan(evaluations=4, calibration_images=8, recipe=None, reconstruction=None, deployment=INT8)
    with pytest.raises(aacp.InvalidOption, match="Tiny are float64, but only float32 can be quantised"):
        aacp.find(network().double(), aacp.Data(part, part, part), {"macs": 0.4}, tmp_path, plan=plan, device="cpu")
    assert not (tmp_path / "history.jsonl").exists()


def test_packages_that_are_missing_are_named_before_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: aacp.Runtime) -> None:
        raise aacp.MissingPackage("onnxruntime is not installed. Install it with: pip install 'aacp[onnx]'.")

    monkeypatch.setattr(aacp.Runtime, "require_installed", missing)
    with pytest.raises(aacp.MissingPackage, match="onnxruntime is not installed"):
        searched(tmp_path, network(), deployment=INT8)
    assert not (tmp_path / "run.json").exists()


def test_calibration_images_that_are_missing_are_reported_before_anything_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(quantization, "calibration_inputs", lambda *_: [])
    with pytest.raises(aacp.InvalidOption, match="no inputs to find the ranges of activations on"):
        searched(tmp_path, network(), deployment=INT8)
    assert not (tmp_path / "history.jsonl").exists()


def test_a_score_that_does_not_run_on_files_leaves_a_note_in_place_of_a_number(task: PruningTask) -> None:
    """A file has no parameters, which a score function may look for."""

    class Loading(OwnRuntime):
        def module_of(self, path: Path, original: nn.Module, example: Any) -> nn.Module:
            return nn.Identity()

    def score(judged: nn.Module, batches: aacp.Batches) -> float:
        return float(next(judged.parameters()).device.type == "cpu")

    task.score = score
    files = {name: QuantizedFile(Path(f"{name}.int8.onnx"), 10, 0.1, 0.99) for name in ("original", "pruned")}
    networks = {"original": task.model, "pruned": task.model}
    found = Quantization(task, PLAN).scores_of(networks, files, Loading(), task.example())
    assert (found.before_test, found.after_test) == (None, None)
    assert found.note.startswith("not scored: ")
    assert (found.calibration_images, found.after_likeness) == (16, 0.99)
    assert (
        "does not run files as modules"
        in Quantization(task, PLAN).scores_of(networks, files, OwnRuntime(), task.example()).note
    )
