"""aacp finetune, scratch, evaluate: the commands after a search."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from aacp.commands.gathering import Command, Given, gathered
from aacp.commands.options import CACHE, DEVICE, HOLDOUT, JSON, TRUST, loss_option, metric_option
from aacp.commands.parameters import SEED as SEED_NUMBER
from aacp.commands.recipes import (
    FINETUNING,
    FROM_SCRATCH,
    RECIPE_OPTIONS,
    finetuning_options,
    recipe_of,
    scratch_options,
    teacher_names,
    training_fields,
    training_means,
)
from aacp.commands.running import resumable, show
from aacp.runs.trainings import default_name
from aacp.train.recipe import Recipe

if TYPE_CHECKING:
    from aacp.pipeline.job import FinishingJob

RUN_FOLDER = click.argument("folder", metavar="RUN", type=click.Path(exists=True, file_okay=False))
MODEL = click.option("--model", help="MODEL that was pruned, if the folder or file does not record it.")

# What replaces the names that a run folder records; the parameter names are fields of TaskNames.
override_options = gathered(
    "overrides",
    [
        MODEL,
        click.option("--weights", type=click.Path(), help="File of the unpruned weights, if it has moved."),
        click.option("--data", help="DATA, if the folder does not record it or it has moved."),
        CACHE,
        metric_option("the run's"),
        loss_option("the run's"),
        DEVICE,
    ],
)

SEED = click.option("--seed", type=SEED_NUMBER, show_default="the search's", help="Seed of the training.")
RESUMED = "RUN may hold any number of trainings, each with a name (--as). The same command resumes an interrupted one."


def _training_command(name: str, what: str, options: Callable[[Command], Command], fixed: Given) -> click.Command:
    """A command that trains the structure of a run; `fixed` has the values of options that it does not have."""

    @click.command(name, help=f"{what}; evaluate, export, report.\n\n{RESUMED}")
    @RUN_FOLDER
    @options
    @SEED
    @override_options
    @TRUST
    @JSON
    def command(
        folder: str,
        training: dict[str, Any],
        overrides: dict[str, Any],
        seed: int | None,
        trust: bool,
        as_json: bool,
    ) -> None:
        from aacp.pipeline.job import FinishingJob

        given = {**training, **fixed}
        job = FinishingJob(folder, {**overrides, **teacher_names(given)}, trust)
        with resumable(folder):
            plan = job.plan(recipe=_recipe(job, given, seed), **training_fields(given))
            pruned = job.finish(plan, training_means(given))
        show(pruned, pruned.to_json(), as_json)

    return command


def _recipe(job: FinishingJob, training: dict[str, Any], seed: int | None) -> Recipe:
    """The recipe of the options; without any, that of the training of the same name, if there is one."""
    name = training["training"] or default_name(True, training["scratch"])
    is_default = seed is None and all(training[option] is None for option in (*RECIPE_OPTIONS, "teacher"))
    known = job.recorded_recipe(name) if is_default else None
    task = {"data": job.names.data, "loss": job.names.loss}
    return known or recipe_of(training, task, job.request.seed if seed is None else seed)


finetune = _training_command(
    "finetune",
    "Fine-tune the structure that the search in RUN found, from inherited weights",
    finetuning_options,
    FINETUNING,
)
scratch = _training_command(
    "scratch", "Train the structure that the search in RUN found from new weights", scratch_options, FROM_SCRATCH
)


@click.command()
@click.argument("network", metavar="RUN_OR_FILE_OR_MODEL")
@click.option("--weights", type=click.Path(), help="File of the weights of a MODEL.")
@MODEL
@click.option("--data", help="DATA to evaluate on; a run folder records its own.")
@HOLDOUT
@CACHE
@metric_option("the run's, or accuracy")
@DEVICE
@click.option("--seed", type=SEED_NUMBER, show_default="the run's, or 0", help="Seed of the hold-out.")
@TRUST
@JSON
def evaluate(
    network: str,
    weights: str | None,
    model: str | None,
    data: str | None,
    holdout: float | None,
    cache: str | None,
    metric: str | None,
    device: str | None,
    seed: int | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Score a network on test and held-out data, and compute its costs."""
    from aacp.pipeline.evaluation import evaluate as evaluate_network

    found = evaluate_network(
        network, data=data, weights=weights, model=model, metric=metric, device=device, seed=seed, holdout=holdout,
        cache=cache, trust=trust,
    )  # fmt: skip
    show(found, found.to_json(), as_json)
