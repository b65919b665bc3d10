"""Which data `aacp finetune RUN` and `aacp scratch RUN` read after a search, and which weights they start from.

The commands score by accuracy, whose passes cannot be told from others that need no gradient ("run").
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

import aacp
from aacp.cli import main
from glue.recorder import Recorder
from glue.subjects import SIZES, Tiny

pytestmark = pytest.mark.slow

SHORT = ("--epochs", "1", "--batch-size", "16", "--device", "cpu", "--no-export", "--trust")


def invoke(*arguments: str | Path) -> None:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def searched(model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished search for the trained network."""
    folder = tmp_path_factory.mktemp("searched")
    save_file(model.state_dict(), folder / "base.safetensors")
    task = ("glue.subjects:tiny", "--weights", folder / "base.safetensors", "--data", "glue.subjects:data")
    search = ("--prune-macs", "0.5", "--evaluations", "2", "--calibration", "32", "--device", "cpu")
    invoke("search", *task, *search, "--run", folder / "run")
    return folder / "run"


def trained(command: str, searched: Path, folder: Path, *options: str) -> Recorder:
    """The record of a training after the search."""
    shutil.copytree(searched, folder, dirs_exist_ok=True)
    recorder = Recorder(folder, Tiny())
    with recorder.recording():
        invoke(command, folder, *SHORT, *options)
    return recorder


@pytest.mark.parametrize("command", ["finetune", "scratch"])
def test_the_hold_out_and_test_data_are_not_trained_on(command: str, searched: Path, tmp_path: Path) -> None:
    found = trained(command, searched, tmp_path)
    delivery = found.passes()["delivery"]
    assert delivery["train pruned"] == {"train"}
    assert len(found.positions("delivery", "train pruned", "train")) == SIZES["train"]
    assert delivery["run pruned"] == {"train", "holdout"}  # recalibration; scores after the epoch
    taught = {"train"} if command == "finetune" else set()
    assert delivery["run unpruned"] == taught | {"holdout", "test"}  # its scores, before the training
    assert found.passes()["evaluation"] == {"run pruned": {"holdout", "test"}}


@pytest.mark.parametrize("command", ["finetune", "scratch"])
def test_the_hold_out_is_trained_on_if_that_is_requested(command: str, searched: Path, tmp_path: Path) -> None:
    found = trained(command, searched, tmp_path, "--train-on-holdout")
    assert found.passes()["delivery"]["train pruned"] == {"train", "holdout"}
    assert "holdout" not in found.passes()["evaluation"]["run pruned"]
    assert json.loads((found.training / "evaluation.json").read_text())["after"]["holdout"] is None


@pytest.mark.parametrize("command", ["finetune", "scratch"])
def test_processes_that_cannot_share_a_batch_are_rejected(command: str, searched: Path) -> None:
    arguments = [command, str(searched), *SHORT, "--processes", "3", "--as", "never"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "A batch of 16 cannot be divided among 3 processes" in result.stderr


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(folder / "trainings" / name / "pruned.safetensors")


def test_fine_tuning_inherits_and_scratch_draws_by_the_seed_of_the_training(searched: Path, tmp_path: Path) -> None:
    """Without a learning rate the first weights are delivered."""
    shutil.copytree(searched, tmp_path, dirs_exist_ok=True)
    original = load_file(searched.parent / "base.safetensors")["conv2.weight"]
    invoke("finetune", tmp_path, *SHORT, "--lr", "1e-12")
    for name, options in (("a", ("--seed", "1")), ("b", ("--seed", "1")), ("c", ("--seed", "2"))):
        invoke("scratch", tmp_path, *SHORT, "--lr", "1e-12", "--as", name, *options)
    assert torch.isin(weights(tmp_path, "finetuned")["conv2.weight"], original).all()
    first, same, other = (weights(tmp_path, name)["conv2.weight"] for name in "abc")
    assert torch.isin(first, original).float().mean() < 0.01
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    assert json.loads((tmp_path / "trainings/a/training.json").read_text())["init"] == "network"
    # The constructor of the network draws as torch's layers do: uniformly within 1 / sqrt(fan-in).
    fan = first[0].numel()
    assert 0.8 < float(first.abs().max()) * fan**0.5 <= 1.0001


def test_a_teacher_by_name_teaches(searched: Path, tmp_path: Path) -> None:
    base = searched.parent / "base.safetensors"
    options = ("--teacher", "glue.subjects:tiny", "--teacher-weights", str(base))
    found = trained("finetune", searched, tmp_path, *options)
    assert found.passes()["delivery"]["run unpruned"] == {
        "train",
        "holdout",
        "test",
    }  # the teacher, and the first scores
    assert json.loads((found.training / "training.json").read_text())["teacher"] != ""
    loaded = aacp.load(tmp_path / "trainings" / "finetuned", trust=True)
    assert isinstance(loaded, Tiny)
