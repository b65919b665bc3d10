"""The default recipe of a command depends on its data."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from aacp.commands.recipes import recipe_named, recipe_of
from aacp.errors import InvalidOption
from aacp.train.recipe import BASE, CIFAR10_FINETUNE, DIGITS, DIGITS_FINETUNE, FINETUNE, FINETUNE_MIXED, Recipe

DEFAULTS = {"recipe": None, "epochs": None, "lr": None, "batch_size": None, "scratch": False, "teacher": None}


@pytest.mark.parametrize(
    ("data", "from_scratch", "loss", "expected"),
    [
        ("digits", False, None, DIGITS_FINETUNE),
        ("digits", True, None, DIGITS),
        ("cifar10:data", False, None, FINETUNE_MIXED),
        ("cifar10:data", False, "mine:loss", FINETUNE),  # which may not understand mixed labels
        ("cifar10:data", True, None, BASE),
        ("imagefolder:data", False, None, FINETUNE),
        ("mine:loaders", False, None, FINETUNE),
    ],
)
def test_the_recipe_goes_with_the_data(data: str, from_scratch: bool, loss: str | None, expected: Recipe) -> None:
    task = {"data": data, "loss": loss}
    assert recipe_of({**DEFAULTS, "scratch": from_scratch}, task, 0) == expected


def test_a_named_recipe_is_taken_and_changed_by_the_options() -> None:
    named = {"recipe": "cifar10-finetune", "epochs": 16, "lr": 0.02, "batch_size": 32}
    task = {"data": "digits", "loss": None}
    found = recipe_of({**DEFAULTS, **named}, task, 7)
    assert (found.epochs, found.milestones) == (16, (8, 12))
    assert (found.lr, found.batch_size, found.seed) == (0.02, 32, 7)
    assert found.weight_decay == CIFAR10_FINETUNE.weight_decay
    assert found.distillation == 0.0
    assert recipe_of({**DEFAULTS, **named, "teacher": "resnet56"}, task, 7).distillation == FINETUNE.distillation


def test_few_epochs_lower_the_rate_of_a_fine_tuning_unless_a_rate_is_given() -> None:
    task, few = {"data": "cifar10:data", "loss": None}, {**DEFAULTS, "epochs": 2}
    assert recipe_of(few, task, 0).lr == pytest.approx(FINETUNE_MIXED.lr / 10)
    assert recipe_of({**few, "scratch": True}, task, 0).lr == BASE.lr
    assert recipe_of({**few, "lr": 0.04}, task, 0).lr == 0.04


def test_a_recipe_of_the_user_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_recipes.py").write_text(
        "import torch\nimport aacp\n"
        "def adagrad(parameters, lr):\n    return torch.optim.Adagrad(parameters, lr=lr)\n"
        "MINE = aacp.Recipe(epochs=20, batch_size=8, lr=0.3, optimiser=adagrad, clip=2.0)\nNUMBER = 5\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = recipe_of({**DEFAULTS, "recipe": "own_recipes:MINE", "epochs": 5}, {"data": "digits", "loss": None}, 3)
    assert (found.epochs, found.lr, found.clip, found.seed) == (5, 0.15, 2.0, 3)
    assert found.to_json()["optimiser"] == "own_recipes:adagrad"
    for name, words in (
        ("own_recipes:NUMBER", "is 5, not a Recipe"),
        ("own_recipes:MIN", "There is no own_recipes:MIN. Name an object of your own, such as own_recipes:MINE."),
        ("own_recipes:OTHER", "such as package.module:NAME"),
    ):
        with pytest.raises(InvalidOption, match=words):
            recipe_named(name)
