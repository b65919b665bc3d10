"""Recipes as options: how to train what was found."""

from __future__ import annotations

from dataclasses import dataclass, fields

import click

from aacp.commands.options import gathered
from aacp.train.recipe import FINETUNE, RECIPES, Recipe
from aacp.zoo.catalogue import named_data


@dataclass(frozen=True)
class Training:
    """How to train."""

    recipe: str | None
    epochs: int | None
    lr: float | None
    batch_size: int | None
    train_on_holdout: bool

    @property
    def is_unsaid(self) -> bool:
        """Whether nothing was said of the recipe."""
        return (self.recipe, self.epochs, self.lr, self.batch_size) == (None,) * 4

    def chosen(self, data: str, scratch: bool, seed: int, loss: str | None = None) -> Recipe:
        """The recipe by its name, or the one for this data, with what else was asked; `loss` is one of the user's."""
        return self._named(data, scratch, loss).changed(self.epochs, self.batch_size, self.lr, seed=seed)

    def _named(self, data: str, scratch: bool, loss: str | None) -> Recipe:
        if self.recipe is not None:
            return RECIPES[self.recipe]
        known = named_data(data)
        recipe = RECIPES[known.recipe if scratch else known.finetune_recipe]
        # The user's own loss may not accept the mixed labels of a recipe that mixes images.
        return FINETUNE if recipe.mixing and loss is not None else recipe


TRAINING_OPTIONS = tuple(field.name for field in fields(Training))

training = gathered(
    Training,
    [
        click.option(
            "--recipe",
            type=click.Choice(list(RECIPES)),
            metavar="NAME",
            show_default="finetune, for CIFAR-10 finetune-mixed; base if from scratch; shorter ones for the digits",
            help=f"How to train: {', '.join(RECIPES)}.",
        ),
        click.option("--epochs", type=int, show_default="the recipe's", help="Cut or stretch the recipe to so many."),
        click.option("--lr", type=float, show_default="the recipe's", help="Highest learning rate."),
        click.option(
            "--batch-size",
            type=int,
            show_default="the recipe's",
            help="Examples in a step of training; a loader of yours keeps its own.",
        ),
        click.option(
            "--train-on-holdout",
            is_flag=True,
            help="Train on the hold-out too, once the search has no more need of it.",
        ),
    ],
)
