"""aacp finetune, scratch, evaluate: the commands after a search."""

from __future__ import annotations

from typing import Any

import click

from aacp.commands.options import (
    CACHE,
    DEVICE,
    HOLDOUT,
    JSON,
    NO_EXPORT,
    gathered,
    loss_option,
    metric_option,
    resumable,
    show,
)
from aacp.commands.recipes import RECIPE_OPTIONS, recipe_of, training_options

RUN_FOLDER = click.argument("folder", metavar="RUN", type=click.Path(exists=True, file_okay=False))
MODEL = click.option("--model", help="MODEL that was pruned, if the folder or file does not record it.")

# What replaces the names that a run folder records; the parameter names are fields of FinishingJob.
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


@click.command()
@RUN_FOLDER
@training_options
@NO_EXPORT
@override_options
@JSON
def finetune(folder: str, training: dict[str, Any], overrides: dict[str, Any], no_export: bool, as_json: bool) -> None:
    """Fine-tune the structure that the search in RUN found, from inherited weights; evaluate, export, report."""
    _finish(folder, training, overrides, False, not no_export, as_json)


@click.command()
@RUN_FOLDER
@training_options
@NO_EXPORT
@override_options
@JSON
def scratch(folder: str, training: dict[str, Any], overrides: dict[str, Any], no_export: bool, as_json: bool) -> None:
    """Train the structure that the search in RUN found from new weights; evaluate, export, report."""
    _finish(folder, training, overrides, True, not no_export, as_json)


def _finish(
    folder: str, training: dict[str, Any], overrides: dict[str, Any], from_scratch: bool, export: bool, as_json: bool
) -> None:
    from aacp.pipeline.job import FinishingJob

    job = FinishingJob(folder, **overrides)
    with resumable(folder):
        is_default = all(training[name] is None for name in RECIPE_OPTIONS)
        recipe = job.recipe if is_default and not from_scratch else None
        recipe = recipe or recipe_of(training, job.names.data, from_scratch, job.request.seed, job.names.loss)
        pruned = job.finish(recipe, from_scratch, training["train_on_holdout"], export)
    show(pruned, pruned.evaluation, as_json)


@click.command()
@click.argument("network", metavar="RUN_OR_FILE_OR_MODEL")
@click.option("--weights", type=click.Path(), help="File of the weights of a MODEL.")
@MODEL
@click.option("--data", help="DATA to evaluate on; a run folder records its own.")
@HOLDOUT
@CACHE
@metric_option("the run's, or accuracy")
@DEVICE
@click.option("--seed", type=int, show_default="the run's, or 0", help="Seed of the hold-out.")
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
    as_json: bool,
) -> None:
    """Score a network on test and held-out data, and compute its costs."""
    from aacp.pipeline.evaluation import evaluate as evaluate_network

    found = evaluate_network(
        network, data=data, weights=weights, model=model, metric=metric, device=device, seed=seed, holdout=holdout,
        cache=cache,
    )  # fmt: skip
    show(found, found, as_json)
