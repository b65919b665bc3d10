"""`aacp train`: from names to a trained network, and the messages for mistakes on the command line."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import aacp
from aacp.cli import main
from aacp.pipeline.job import TaskNames
from aacp.runs.files import LOG, WEIGHTS
from aacp.train.job import TrainingJob
from aacp.train.recipe import DIGITS
from aacp.zoo.data import load_data
from aacp.zoo.models import build_model
from aacp.zoo.weights import load_weights
from forks import started

FOUR = ("train", "digits_resnet", "--data", "digits", "--epochs", "4", "--device", "cpu")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_no_seed_trains_on_what_other_commands_hold_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts: list[Any] = []

    def record(model: object, data: aacp.Data, *_: object, **__: object) -> None:
        parts.append(data)
        raise KeyboardInterrupt

    monkeypatch.setattr("aacp.train.job.fit", record)
    for seed in (0, 3):
        recipe = replace(DIGITS, seed=seed)
        job = TrainingJob("digits_resnet", "digits", recipe, str(tmp_path / str(seed)), device="cpu")
        with pytest.raises(KeyboardInterrupt):
            job.run()
    pruned: Any = TaskNames("digits_resnet", "digits", device="cpu").load(seed=5).data
    for data in parts:
        assert torch.equal(data.holdout.pixels, pruned.holdout.pixels)
        assert torch.equal(data.train.pixels, pruned.train.pixels)
    assert len(parts) == 2


def test_test_data_are_scored_in_the_fast_layout_of_a_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    layouts: list[bool] = []

    def score(_: object, model: torch.nn.Module, *__: object) -> float:
        weights = [
            parameter
            for parameter in model.parameters()
            if parameter.dim() == 4 and parameter[0, :2, :2, 0].numel() == 4
        ]
        layouts.extend(weight.is_contiguous() for weight in weights)
        return 0.5

    fitted = SimpleNamespace(last=SimpleNamespace(epoch=0, accuracy=0.0, holdout=None))
    monkeypatch.setattr("aacp.train.job.fit", lambda *_, **__: fitted)
    monkeypatch.setattr("aacp.train.job.scored", score)
    found = TrainingJob("digits_resnet", "digits", DIGITS, str(tmp_path), device="cpu").run()
    assert found["test accuracy"] == 0.5
    assert set(layouts) == {False}


def test_options_about_the_data_reach_the_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jobs: list[TrainingJob] = []
    monkeypatch.setattr(TrainingJob, "run", lambda job: jobs.append(job) or {})
    options = ("--cache", str(tmp_path / "pixels"), "--holdout", "0.25", "--train-on-holdout")
    assert run(*FOUR, "--run", str(tmp_path), *options)[0] == 0
    assert [(job.cache, job.holdout, job.train_on_holdout) for job in jobs] == [(str(tmp_path / "pixels"), 0.25, True)]


def test_the_default_folder_is_none_of_another_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """So that `aacp prune MODEL` may follow `aacp train MODEL`."""
    taken: list[str] = []

    def stop(folder: str) -> None:
        taken.append(folder)
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TrainingJob, "run", lambda job: stop(job.folder))
    monkeypatch.setattr("aacp.pipeline.job.pruning_run", lambda names, budget, plan, folder, *_: stop(folder))
    monkeypatch.setattr("aacp.pipeline.job.sweep_run", lambda names, budgets, plan, folder, *_: stop(folder))
    for command in ("train", "prune", "sweep"):
        limit = () if command == "train" else ("--prune-macs", "0.5")
        assert run(command, "digits_resnet", "--data", "digits", *limit)[0] == 130
    assert taken == ["runs/digits_resnet-base", "runs/digits_resnet", "runs/digits_resnet-sweep"]


@pytest.mark.slow
def test_the_digits_are_learnt_in_a_few_epochs(tmp_path: Path) -> None:
    code, out, err = run(*FOUR, "--run", str(tmp_path), "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["epochs"] == 4
    assert found["test accuracy"] > 0.9
    assert found["hold-out accuracy"] > 0.9
    assert "epoch 4/4: loss" in err
    model = build_model("digits_resnet")
    load_weights(model, tmp_path / WEIGHTS)
    assert found["weights"] == str(tmp_path / WEIGHTS)

    code, out, _ = run(*FOUR, "--run", str(tmp_path))
    assert code == 0
    assert f"test accuracy: {found['test accuracy']}" in out  # finished: it only scores again

    code, out, err = run(*FOUR, "--run", str(tmp_path), "--lr", "0.3")
    assert code == 1
    assert "RunMismatch" in err
    assert "recipe lr was 0.1, now 0.3" in err


@pytest.mark.slow
def test_a_network_teaches_another_and_weights_are_loaded(tmp_path: Path) -> None:
    teacher = build_model("digits_resnet")
    torch.save(teacher.state_dict(), tmp_path / "teacher.pt")
    job = TrainingJob(
        "digits_resnet",
        "digits",
        replace(DIGITS.scaled(1), distillation=0.9, lr=1e-12, weight_decay=0.0),
        str(tmp_path / "run"),
        weights=str(tmp_path / "teacher.pt"),
        teacher="digits_resnet",
        teacher_weights=str(tmp_path / "teacher.pt"),
        device="cpu",
    )
    job.run()
    found = build_model("digits_resnet")
    load_weights(found, tmp_path / "run" / WEIGHTS)
    assert torch.equal(found.conv1.weight, teacher.conv1.weight)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("train", "digits_resnet"), 2, "Missing option '--data'"),
        (("train", "nope", "--data", "digits"), 1, "UnknownModel: "),
        (("train", "digits_resnet", "--data", "nope"), 1, "UnknownData: "),
        ((*FOUR, "--recipe", "nope"), 2, "'nope' is not known. Choose from base, "),
        ((*FOUR, "--epochs", "0"), 1, "InvalidOption: epochs is 0"),
        ((*FOUR, "--batch-size", "100000"), 1, "InvalidData: The batch size is 100000"),
        ((*FOUR, "--device", "gpu"), 1, "InvalidOption: 'gpu' is not a device"),
        ((*FOUR, "--processes", "0"), 2, "0 is not in the range x>=1"),
        ((*FOUR, "--weights", "nowhere.pt"), 1, "InvalidWeights: "),
        ((*FOUR, "--teacher", "digits_resnet"), 2, "--teacher has no weights"),
        ((*FOUR, "--teacher-weights", "t.pt"), 2, "no --teacher says which network"),
        ((*FOUR, "--device", "cuda:1", "--processes", "2"), 1, "InvalidOption: cuda:1 is one device, but 2 processes"),
        ((*FOUR, "--recipe", "finetune"), 1, "InvalidOption: The recipe takes 0.9 of the loss from a teacher"),
        (
            ("train", "vgg16", "--data", "digits", "--epochs", "1", "--device", "cpu"),
            1,
            "InvalidData: The network does not run",
        ),
    ],
)
def test_mistakes_end_in_one_line_and_a_code(
    tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    found, out, err = run(*arguments, "--run", str(tmp_path))
    assert found == code, err
    assert message in err
    assert out == ""
    assert "Traceback" not in err


def test_tensorboard_that_is_missing_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, err = run(*FOUR, "--run", str(tmp_path), "--tensorboard")
    assert code == 1
    assert "TensorBoard is not installed. Install it with: pip install tensorboard." in err


@pytest.mark.slow
def test_an_interrupted_run_says_how_to_resume_and_ends_with_130(tmp_path: Path) -> None:
    messages = tmp_path / "messages"
    process = started(*FOUR, "--epochs", "400", "--run", tmp_path / "run", stderr=messages)
    while process.is_alive() and not (tmp_path / "run" / LOG).exists():
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGINT)
    process.join()
    err = messages.read_text()
    assert process.exitcode == 130, err
    assert err.splitlines()[-1] == f"Interrupted. The same command resumes from {tmp_path / 'run'}."
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_base_is_trained_on_the_hold_out_if_that_is_requested_and_stops_where_it_is_told(tmp_path: Path) -> None:
    """The learning rates are those of four epochs, and the weights serve as a base of prune."""
    given = ("--run", str(tmp_path), "--train-on-holdout", "--until", "1", "--json")
    code, out, err = run(*FOUR, *given)
    assert code == 0, err
    found = json.loads(out)
    assert (found["epochs"], found["hold-out accuracy"]) == (1, None)
    assert found["weights"] == str(tmp_path / "weights-1.safetensors")
    load_weights(build_model("digits_resnet"), found["weights"])
    recorded = json.loads((tmp_path / "run.json").read_text())["data"]["shape"][0]
    data = load_data("digits")
    assert recorded == len(data.train) + len(data.holdout)
