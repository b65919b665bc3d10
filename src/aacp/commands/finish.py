"""aacp finetune, scratch, evaluate: what comes after a search."""

from __future__ import annotations

from dataclasses import dataclass

import click

from aacp.commands.options import DEVICE, JSON, NO_EXPORT, gathered, loss_option, metric_option, resumable, show
from aacp.commands.recipes import Training, training

RUN_FOLDER = click.argument("folder", metavar="RUN", type=click.Path(exists=True, file_okay=False))
MODEL = click.option("--model", help="MODEL that was pruned, where the folder or file does not name it.")


@dataclass(frozen=True)
class Overrides:
    """What a run folder may not know, or not any more."""

    model: str | None
    weights: str | None
    data: str | None
    metric: str | None
    loss: str | None
    device: str | None


told = gathered(
    Overrides,
    [
        MODEL,
        click.option("--weights", type=click.Path(), help="File of the unpruned weights, where it has moved."),
        click.option("--data", help="DATA, where the folder does not name it or it has moved."),
        metric_option("the run's"),
        loss_option("the run's"),
        DEVICE,
    ],
)


@click.command()
@RUN_FOLDER
@training
@NO_EXPORT
@told
@JSON
def finetune(trained: Training, named: Overrides, folder: str, no_export: bool, as_json: bool) -> None:
    """Fine-tune what the search in RUN has found, with weights inherited from the network; evaluate, export, report."""
    _finish(folder, trained, named, False, not no_export, as_json)


@click.command()
@RUN_FOLDER
@training
@NO_EXPORT
@told
@JSON
def scratch(trained: Training, named: Overrides, folder: str, no_export: bool, as_json: bool) -> None:
    """Train what the search in RUN has found from scratch; evaluate, export, report."""
    _finish(folder, trained, named, True, not no_export, as_json)


def _finish(folder: str, trained: Training, named: Overrides, from_scratch: bool, export: bool, as_json: bool) -> None:
    from aacp.pipeline.job import FinishingJob

    job = FinishingJob(folder, named.model, named.data, named.weights, named.metric, named.device, named.loss)
    with resumable(folder):
        recipe = job.recipe if trained.is_unsaid and not from_scratch else None
        recipe = recipe or trained.chosen(job.names.data, from_scratch, job.asked.seed, job.names.loss)
        pruned = job.run(recipe, from_scratch, trained.train_on_holdout, export)
    show(pruned, pruned.evaluation, as_json)


@click.command()
@click.argument("network", metavar="RUN_OR_FILE_OR_MODEL")
@click.option("--weights", type=click.Path(), help="File of the weights of a MODEL.")
@MODEL
@click.option("--data", help="DATA to evaluate on; a run folder knows its own.")
@metric_option("the run's, or accuracy")
@DEVICE
@click.option("--seed", type=int, show_default="the run's, or 0", help="Of the hold-out.")
@JSON
def evaluate(
    network: str,
    weights: str | None,
    model: str | None,
    data: str | None,
    metric: str | None,
    device: str | None,
    seed: int | None,
    as_json: bool,
) -> None:
    """Score a network on test and held-out data, and count its MACs, parameters and activations."""
    from aacp.pipeline.evaluation import evaluate as evaluate_network

    found = evaluate_network(network, data=data, weights=weights, model=model, metric=metric, device=device, seed=seed)
    show(found, found, as_json)
