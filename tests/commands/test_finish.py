"""aacp search, finetune, scratch, evaluate: single stages as commands in one folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

import aacp
from aacp.cli import main
from aacp.pipeline.training import TrainingRun

pytestmark = pytest.mark.slow

SEARCH = ["--data", "digits", "--prune-macs", "0.5", "--evaluations", "8", "--calibration", "64", "--device", "cpu"]


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(autouse=True)
def _without_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingRun, "export", lambda *_: (None, ""))  # tests/pipeline sees to that


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    network = aacp.build_model("digits_resnet")
    path = tmp_path_factory.mktemp("base") / "base.safetensors"
    save_file(network.state_dict(), path)
    return path


def test_a_search_stops_at_its_structure_and_finetune_continues(weights: Path, tmp_path: Path) -> None:
    code, out, _ = run("search", "digits_resnet", "--weights", weights, *SEARCH, "--run", tmp_path, "--json")
    choice = json.loads(out)
    assert code == 0
    assert all(limit["reached"] <= limit["bound"] == limit["requested"] for limit in choice["limits"])
    assert choice["folder"] == str(tmp_path)
    assert not (tmp_path / "trainings").exists()

    code, out, _ = run("finetune", tmp_path, "--epochs", "1", "--device", "cpu", "--json")
    assert code == 0
    after = json.loads(out)["after"]
    assert after["macs"] == choice["limits"][0]["reached"]
    assert len((tmp_path / "trainings/finetuned/training/log.jsonl").read_text().splitlines()) == 1
    code, again, _ = run("finetune", tmp_path, "--device", "cpu", "--json")  # by the recipe it was trained by
    assert (code, again) == (0, out)

    code, out, _ = run("evaluate", tmp_path, "--device", "cpu", "--json")
    found = json.loads(out)
    assert code == 0
    assert {name: found[name] for name in ("test", "holdout", "macs", "params")} == {
        name: after[name] for name in ("test", "holdout", "macs", "params")
    }
    code, _, err = run("evaluate", tmp_path, "--seed", "0", "--data", "nowhere")
    assert "UnknownData" in err  # the run's own seed may be said again
    code, _, err = run("evaluate", tmp_path, "--seed", "1")
    assert (code, "was drawn with seed 0, not 1" in err) == (1, True)
    code, _, err = run("evaluate", tmp_path, "--weights", weights)
    assert (code, "has its own weights" in err) == (1, True)


def test_prune_continues_from_a_search_with_the_same_options(weights: Path, tmp_path: Path) -> None:
    same = ("--reconstruction", "none")  # the default differs, since a training may follow a search
    arguments = ["digits_resnet", "--weights", weights, *SEARCH, *same, "--run", tmp_path, "--json"]
    choice = json.loads(run("search", *arguments)[1])
    history = (tmp_path / "history.jsonl").read_bytes()
    code, out, _ = run("prune", *arguments, "--no-training")
    assert code == 0
    assert json.loads(out)["after"]["macs"] == choice["limits"][0]["reached"]
    assert (tmp_path / "history.jsonl").read_bytes() == history


def test_scratch_trains_the_structure_from_new_weights(weights: Path, tmp_path: Path) -> None:
    _, out, _ = run("search", "digits_resnet", "--weights", weights, *SEARCH, "--run", tmp_path)
    kept = json.loads((tmp_path / "structure.json").read_text())["counts"]  # units of one channel each
    assert out.splitlines()[-2:] == [f"kept: {kept}", f"folder: {tmp_path}"]
    code, out, _ = run("scratch", tmp_path, "--epochs", "1", "--device", "cpu", "--train-on-holdout", "--no-export")
    assert code == 0
    assert "test score" in out
    assert "holdout score" not in out
    recorded = json.loads((tmp_path / "trainings/scratch/training.json").read_text())
    assert recorded["export"] is False
    assert recorded["from_scratch"] is recorded["train_on_holdout"] is True
    log = (tmp_path / "trainings/scratch/training/log.jsonl").read_text()
    assert json.loads(log)["holdout"] is None
    assert json.loads(run("evaluate", tmp_path, "--json")[1])["holdout"] is None
    assert recorded["recipe"]["epochs"] == 1


def test_a_network_by_its_name_is_evaluated_with_its_weights(weights: Path) -> None:
    code, out, _ = run("evaluate", "digits_resnet", "--weights", weights, "--data", "digits", "--json")
    assert code == 0
    network = aacp.build_model("digits_resnet")
    aacp.load_weights(network, weights)
    expected = aacp.accuracy(network.eval(), aacp.Batches.of(aacp.load_data("digits").test))
    assert json.loads(out)["test"] == expected
    assert json.loads(out)["params"] == sum(p.numel() for p in network.parameters())


def test_a_run_with_a_score_that_cannot_be_imported_is_not_evaluated_by_accuracy(tmp_path: Path) -> None:
    def error(network: torch.nn.Module, batches: aacp.Batches) -> float:
        return aacp.accuracy(network, batches) - 1

    plan = aacp.Plan(evaluations=1, calibration_images=16, recipe=None, reconstruction=None, export=False)
    network = aacp.build_model("digits_resnet")
    digits = aacp.load_data("digits")
    aacp.prune(network, digits, {"macs": 0.5}, tmp_path, plan=plan, score=error, name="digits_resnet", device="cpu")
    code, _, err = run("evaluate", tmp_path, "--data", "digits", "--device", "cpu")
    assert (code, "was scored by error, which cannot be imported" in err) == (1, True)
    named = ("--metric", "aacp:accuracy")
    code, out, _ = run("evaluate", tmp_path, "--data", "digits", "--device", "cpu", *named, "--json")
    assert code == 0
    after = json.loads((tmp_path / "trainings/untrained/evaluation.json").read_text())["after"]
    assert json.loads(out)["test"] == pytest.approx(after["test"] + 1)


def test_a_sweep_prints_every_budget(weights: Path, tmp_path: Path) -> None:
    limits = ["--prune-macs", "0.3,0.6", "--data", "digits", "--evaluations", "6", "--calibration", "64"]
    arguments = ["digits_resnet", "--weights", weights, *limits, "--device", "cpu", "--run", tmp_path]
    code, out, _ = run("sweep", *arguments, "--json")
    assert code == 0
    assert [Path(run["folder"]).name for run in json.loads(out)["runs"]] == ["macs-0.3", "macs-0.6"]
    code, out, _ = run("sweep", *arguments)
    assert "macs-0.3: estimated" in out


def test_a_drop_is_given_in_points(weights: Path, tmp_path: Path) -> None:
    arguments = ["digits_resnet", "--weights", weights, "--data", "digits", "--max-drop", "99", "--no-training"]
    arguments += ["--no-export"]
    sizes = ["--evaluations", "2", "--calibration", "64", "--device", "cpu", "--shrink", "size", "--run", tmp_path]
    code, _, _ = run("prune", *arguments, *sizes)
    recorded = json.loads((tmp_path / "run.json").read_text())
    assert code == 0
    assert (recorded["max_drop"], recorded["shrink"]) == (0.99, "file_size")
    assert json.loads((tmp_path / "trainings/untrained/training.json").read_text())["export"] is False


BOTH = "--prune-macs and --max-macs exclude each other. Give one of them."


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("finetune", "nowhere"), 2, "does not exist"),
        (("search", "digits_resnet", "--data", "digits"), 2, "no limit to prune to"),
        (("search", "digits_resnet", "--data", "digits", "--prune-macs", "a half"), 2, "not a share to remove"),
        (("search", "digits_resnet", "--data", "digits", "--prune-size", "50"), 2, "to keep with --max-size"),
        (("search", "digits_resnet", "--data", "digits", "--prune-macs", "0.3,0.4"), 2, "aacp sweep"),
        (("search", "digits_resnet", "--data", "digits", "--prune-macs", "0.3", "--max-macs", "1M"), 2, BOTH),
        (("search", "digits_resnet", "--data", "digits", "--max-size", "2 Megs"), 2, "value for --max-size: file_size"),
        (("search", "digits_resnet", "--data", "digits", "--max-size", "2XB"), 2, "'2XB' is not a quantity"),
        (
            ("sweep", "digits_resnet", "--data", "digits", "--prune-size", "0.5,1"),
            2,
            "value for --prune-size: file_size",
        ),
        (("evaluate", "digits_resnet"), 1, "does not record what data"),
        (("evaluate", "runs/nothing"), 1, "There is no file or folder runs/nothing, and no network of this name"),
        (("export", "runs/nothing"), 1, "There is no file or folder runs/nothing. Name a run folder"),
        (("evaluate", "digits_resnet", "--data", "digits", "--model", "resnet20"), 1, "resnet20 would be ignored"),
        (("evaluate", "digits_resnet", "--data", "digits", "--metric", "os:nope"), 1, "InvalidOption: os:nope is not"),
    ],
)
def test_mistakes_end_in_one_line_and_a_code(arguments, code: int, words: str, tmp_path: Path) -> None:
    found, out, err = run(*arguments, *(("--run", tmp_path) if arguments[0] == "search" else ()))
    assert (found, out) == (code, "")
    assert words in err
    assert "Traceback" not in err


def test_a_folder_without_a_finished_search_is_not_trained(tmp_path: Path) -> None:
    code, _, err = run("finetune", tmp_path)
    assert code == 1
    assert "does not hold a run" in err
