"""Recipes as options: how to train the structure that was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from aacp.commands.options import gathered
from aacp.train.recipe import FINETUNE, RECIPES, Recipe
from aacp.zoo.catalogue import named_data


def recipe_of(training: Mapping[str, Any], data: str, scratch: bool, seed: int, loss: str | None = None) -> Recipe:
    """The named recipe, or the default for this data, changed by the other options.

    Args:
        training: the values of `training_options`.
        data: the name of the data.
        scratch: whether the network is trained from new weights.
        seed: the seed of the training.
        loss: the name of a loss function, if one is given.
    """
    recipe = _named_recipe(training["recipe"], data, scratch, loss)
    return recipe.changed(training["epochs"], training["batch_size"], training["lr"], seed=seed)


def _named_recipe(name: str | None, data: str, scratch: bool, loss: str | None) -> Recipe:
    if name is not None:
        return RECIPES[name]
    known = named_data(data)
    recipe = RECIPES[known.recipe if scratch else known.finetune_recipe]
    # The user's own loss may not accept the mixed labels of a recipe that mixes images.
    return FINETUNE if recipe.mixing and loss is not None else recipe


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
