"""Recipes as options: how to train the structure that was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from aacp.commands.options import gathered
from aacp.train.recipe import DIGITS, FINETUNE, FINETUNE_MIXED, RECIPES, Recipe

# The digits data set is small: it needs less time, and its teacher knows little more than the labels.
DIGITS_FINETUNE = replace(DIGITS.scaled(20), lr=0.03, distillation=0.5)


def recipe_of(training: Mapping[str, Any], data: str, scratch: bool, seed: int, loss: str | None = None) -> Recipe:
    """The named recipe, or the default for this data, changed by the other options.

    Args:
        training: the values of `training_options`.
        data: the name of the data.
        scratch: whether the network is trained from new weights.
        seed: of the training.
        loss: the name of a loss function, if one is given.
    """
    recipe = _named_recipe(training["recipe"], data, scratch, loss)
    return recipe.changed(training["epochs"], training["batch_size"], training["lr"], seed=seed)


def _named_recipe(name: str | None, data: str, scratch: bool, loss: str | None) -> Recipe:
    if name is not None:
        return RECIPES[name]
    if data == "digits":
        return DIGITS if scratch else DIGITS_FINETUNE
    if scratch:
        return RECIPES["base"]
    return FINETUNE_MIXED if data.startswith("cifar10:") and loss is None else FINETUNE


RECIPE_OPTIONS = ("recipe", "epochs", "lr", "batch_size")
TRAINING_OPTIONS = (*RECIPE_OPTIONS, "train_on_holdout")

training_options = gathered(
    "training",
    [
        click.option(
            "--recipe",
            type=click.Choice(list(RECIPES)),
            metavar="NAME",
            show_default="finetune, for CIFAR-10 finetune-mixed; base if from scratch; shorter ones for the digits",
            help=f"How to train: {', '.join(RECIPES)}.",
        ),
        click.option(
            "--epochs", type=int, show_default="the recipe's", help="Scale the recipe to this number of epochs."
        ),
        click.option("--lr", type=float, show_default="the recipe's", help="Highest learning rate."),
        click.option(
            "--batch-size",
            type=int,
            show_default="the recipe's",
            help="Examples in a step of training; a DataLoader keeps its own.",
        ),
        click.option(
            "--train-on-holdout",
            is_flag=True,
            help="After the search, train on the hold-out too.",
        ),
    ],
)
