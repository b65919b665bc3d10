"""Recipes as options: how to train the structure that was found."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from aacp.commands.gathering import Given, gathered, parameter_names
from aacp.commands.parameters import Name
from aacp.errors import InvalidOption
from aacp.train.recipe import FINETUNE, RECIPES, Recipe
from aacp.user.values import instance
from aacp.zoo.catalogue import named_data

if TYPE_CHECKING:
    from aacp.pipeline.training import TrainingMeans


def recipe_of(training: Given, task: Given, seed: int) -> Recipe:
    """The named recipe, or the default for this data, changed by the other options.

    Args:
        training: the values of `training_options`.
        task: the names of the data and of the loss function, if one is given.
        seed: the seed of the training.
    """
    recipe = _named_recipe(training["recipe"], task["data"], training["scratch"], task["loss"])
    if training["teacher"] is not None and not recipe.distillation:
        recipe = replace(recipe, distillation=FINETUNE.distillation)
    if training["epochs"] is not None:
        recipe = recipe.scaled(training["epochs"], finetuning=not training["scratch"])
    return recipe.changed(batch_size=training["batch_size"], lr=training["lr"], seed=seed)


def _named_recipe(name: str | None, data: str, scratch: bool, loss: str | None) -> Recipe:
    if name is not None:
        return recipe_named(name)
    known = named_data(data)
    recipe = RECIPES[known.recipe if scratch else known.finetune_recipe]
    # The user's own loss may not accept the mixed labels of a recipe that mixes images.
    return FINETUNE if recipe.mixing and loss is not None else recipe


def recipe_named(name: str) -> Recipe:
    """A recipe of aacp by its name, or a recipe of the user as `package.module:NAME`."""
    if name in RECIPES:
        return RECIPES[name]
    from aacp.zoo.imports import named_object

    return instance(name, named_object(name, InvalidOption), Recipe, "Name an aacp.Recipe that a module defines.")


def teacher_names(training: Given) -> dict[str, Any]:
    """The options of the teacher, which are fields of a task by names."""
    found = {name: training[name] for name in ("teacher", "teacher_weights")}
    if found["teacher"] is None and found["teacher_weights"] is not None:
        raise click.UsageError(
            "--teacher-weights is the file of a teacher's weights, but no --teacher says which network they belong to. "
            "Add --teacher MODEL, or leave out --teacher-weights."
        )
    if found["teacher"] is not None and found["teacher_weights"] is None:
        raise click.UsageError(
            "--teacher has no weights, and an untrained network has nothing to teach. Add --teacher-weights FILE, or "
            "leave out --teacher."
        )
    return found


def training_means(training: Given) -> TrainingMeans:
    """What the training uses besides the task and the plan."""
    from aacp.pipeline.training import TrainingMeans

    return TrainingMeans(training["again"], training["processes"])


def training_fields(training: Given) -> dict[str, Any]:
    """The fields of a plan, besides the recipe, that the options of a training decide."""
    return {
        "from_scratch": training["scratch"],
        "init": training["init"],
        "train_on_holdout": training["train_on_holdout"],
        "export": not training["no_export"],
        "resources": training["resources"],
        "training": training["training"],
    }


RECIPE_NAME = Name(RECIPES, "package.module:NAME of your own")
RECIPE_OPTIONS = ("recipe", "epochs", "lr", "batch_size")

SCRATCH = click.option("--scratch", is_flag=True, help="Train from new weights instead of fine-tuning inherited ones.")
INIT = click.option(
    "--init",
    type=Name(["network", "he"]),
    show_default="network if MODEL draws its weights, else he",
    help="How new weights are drawn: as the network itself draws them, or He-normal.",
)
TEACHER = (
    click.option("--teacher", metavar="MODEL", show_default="the unpruned network", help="MODEL to distil from."),
    click.option("--teacher-weights", type=click.Path(), help="File of the teacher's weights."),
)
# How every training is given, whether it fine-tunes or starts from scratch.
COMMON = (
    click.option(
        "--recipe",
        type=RECIPE_NAME,
        metavar="NAME",
        show_default="finetune, for CIFAR-10 finetune-mixed; base if from scratch; shorter ones for the digits",
        help=f"How to train: {', '.join(RECIPES)}, or package.module:NAME of your own.",
    ),
    click.option(
        "--epochs",
        type=int,
        show_default="the recipe's",
        help="Scale the recipe to this number of epochs; fewer also lower the learning rate of a fine-tuning.",
    ),
    click.option("--lr", type=float, show_default="the recipe's; lower for few epochs", help="Highest learning rate."),
    click.option(
        "--batch-size",
        type=int,
        show_default="the recipe's",
        help="Examples in a step of training; a DataLoader keeps its own.",
    ),
    click.option("--train-on-holdout", is_flag=True, help="After the search, train on the hold-out too."),
    click.option(
        "--as",
        "training",
        metavar="NAME",
        show_default="finetuned, or scratch",
        help="Name of the training: a run folder holds any number of them, each in trainings/NAME.",
    ),
    click.option(
        "--again", is_flag=True, help="Replace a training of this name that is finished or had other options."
    ),
    click.option(
        "--processes",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Processes that train together on this machine, a GPU each; the search stays in one.",
    ),
    click.option("--no-export", is_flag=True, help="Skip the ONNX files and the timing of both networks."),
    click.option(
        "--resources",
        is_flag=True,
        help="Measure memory and energy of both exported networks, about 10 seconds in all.",
    ),
)

# The values of options that a command does not have.
FINETUNING: Given = {"scratch": False, "init": None}
FROM_SCRATCH: Given = {"scratch": True, "teacher": None, "teacher_weights": None}

finetuning_options = gathered("training", [*COMMON, *TEACHER])
scratch_options = gathered("training", [*COMMON, INIT])
EITHER = (*COMMON, *TEACHER, SCRATCH, INIT)  # of commands that can do either
TRAINING_OPTIONS = parameter_names(EITHER)
training_options = gathered("training", EITHER)
