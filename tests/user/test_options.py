"""An unknown option or choice is answered with the one that was probably meant, a missing option with its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import aacp

CASES: list[tuple[Callable[..., Any], str, str]] = [
    (aacp.Plan, "evals", "Plan has no option evals. Give evaluations."),
    (aacp.Plan, "epochs", "Plan has no option epochs. Give recipe=aacp.Recipe(epochs=...)."),
    (
        aacp.Plan,
        "runtime",
        "Plan has no option runtime. Give deployment=aacp.Deployment(runtime=...).",
    ),
    (aacp.Recipe, "learning_rate", "Recipe has no option learning_rate. Choose from epochs, batch_size, lr, "),
    (aacp.Deployment, "thread", "Deployment has no option thread. Give threads."),
    (aacp.prune, "evaluations", "prune has no option evaluations. Give plan=aacp.Plan(evaluations=...)."),
    (aacp.prune, "epochs", "prune has no option epochs. Give plan=aacp.Plan(recipe=aacp.Recipe(epochs=...))."),
    (aacp.prune, "process", "prune has no option process. Give processes."),
    (aacp.find, "max_drop", "find has no option max_drop. Give plan=aacp.Plan(max_drop=...)."),
    (aacp.sweep, "known", "sweep has no option known. "),
    (aacp.fit, "epochs", "fit has no option epochs. Give recipe=aacp.Recipe(epochs=...)."),
    (aacp.finetune, "teachers", "finetune has no option teachers. Give teacher."),
    (aacp.train_from_scratch, "hold_out", "train_from_scratch has no option hold_out. Give holdout."),
    (aacp.Data.of, "hold_out", "Data.of has no option hold_out. Give holdout."),
    (aacp.Data.of, "batch", "Data.of has no option batch. Choose from train, test, holdout, seed, name."),
    (aacp.trace, "freeze", "trace has no option freeze. Give frozen."),
]

MISSING: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: aacp.Recipe(epochs=3),
        "Recipe is called without batch_size and lr. Give Recipe(epochs=..., batch_size=..., lr=...).",
    ),
    (lambda: aacp.Recipe(3, 64), "Recipe is called without lr. Give Recipe(epochs=..., batch_size=..., lr=...)."),
    (lambda: aacp.Data.of(name="x"), "Data.of is called without train. Give Data.of(train=...)."),
    (lambda: aacp.fit(nn.Identity()), "fit is called without data. Give fit(model=..., data=...)."),
]


# What a user may write wrongly, and the name that was meant.
CHOICES: list[tuple[str, Callable[[], Any], str]] = [
    ("a network", lambda: aacp.build_model("digits_resnt"), "Give digits_resnet, or choose from vgg16, "),
    ("its case", lambda: aacp.build_model("ResNet56"), "Give resnet56, or choose from vgg16, "),
    ("a library", lambda: aacp.build_model("torchvison:resnet18"), "Give torchvision:NAME, run the command where"),
    ("its networks", lambda: aacp.build_model("resnet50"), "Give torchvision:resnet50."),
    ("torchvision", lambda: aacp.build_model("torchvision:resnt18"), "Give resnet18, or another name that torchvision"),
    ("timm", lambda: aacp.build_model("timm:resnt18"), "Give resnet18, or another name that timm.list_models()"),
    ("data", lambda: aacp.load_data("digit"), "Give digits, or choose from cifar10:PATH, "),
    ("a missing path", lambda: aacp.load_data("cifar10"), "Give cifar10:PATH, or choose from digits, "),
    ("data with a path", lambda: aacp.load_data("cifar:data"), "Give cifar10:PATH, run the command where"),
    ("a method", lambda: aacp.Plan(method="unform"), "Give uniform, or choose from default, "),
    ("an importance", lambda: aacp.Plan(importance="activations"), "Give activation, or choose from l1, "),
    (
        "a scope",
        lambda: aacp.trace(nn.Identity(), torch.zeros(1), scope="iner"),
        "Give inner, or choose from all, paper.",
    ),
    ("a runtime", lambda: aacp.Deployment("onnx-runtime"), "Give onnxruntime, or choose from cuda-graphs, "),
    ("a precision", lambda: aacp.Deployment(precision="int-8"), "Give int8, or choose from float32."),
    ("an optimiser", lambda: aacp.Recipe(1, 1, 0.1, optimiser="adam"), "Give adamw, or choose from sgd, "),
    ("new weights", lambda: aacp.Plan(init="networks", from_scratch=True), "Give network, or choose from he, or None."),
    ("a cost", lambda: aacp.Budget.of({"mac": 0.5}), "Give macs, or choose from params, "),
    ("a cost to shrink", lambda: aacp.Plan(max_drop=0.1, shrink="param"), "Give params, or choose from macs, "),
]


@pytest.mark.parametrize(("what", "call", "message"), CHOICES, ids=[what for what, _, _ in CHOICES])
def test_an_unknown_choice_is_answered_with_the_nearest(what: str, call: Callable[[], Any], message: str) -> None:
    if what == "timm":
        pytest.importorskip("timm")
    with pytest.raises(aacp.AACPError) as caught:
        call()
    assert f". {message}" in str(caught.value)


def test_a_file_of_the_current_folder_is_the_nearest_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_network.py").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(aacp.UnknownModel, match=r"no Python module 'my_netwrok'\. Give my_network, run the command"):
        aacp.build_model("my_netwrok:build")


def test_nothing_is_guessed_for_a_name_that_is_like_no_other() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"no search method 'magic'\. Choose from default, paper, "):
        aacp.Plan(method="magic")


@pytest.mark.parametrize(("target", "option", "message"), CASES, ids=lambda value: getattr(value, "__name__", None))
def test_an_unknown_option_is_answered_with_a_known_one(target: Callable[..., Any], option: str, message: str) -> None:
    with pytest.raises(aacp.InvalidOption) as caught:
        target(**{option: 1})
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(("call", "message"), MISSING, ids=[message.split()[0] for _, message in MISSING])
def test_a_missing_option_is_named_with_a_call_that_has_it(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(aacp.InvalidOption) as caught:
        call()
    assert str(caught.value) == message


def test_a_changed_plan_rejects_unknown_options_too() -> None:
    with pytest.raises(aacp.InvalidOption, match=r"Plan has no option evals\. Give evaluations"):
        replace(aacp.Plan(), evals=3)  # type: ignore[call-arg]


def test_known_options_are_those_of_the_signature() -> None:
    assert aacp.Plan(evaluations=3).evaluations == 3
    assert list(inspect.signature(aacp.Plan).parameters)[:2] == ["pruning_step", "method"]
