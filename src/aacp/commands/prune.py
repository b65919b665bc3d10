"""aacp prune, search, sweep: from a trained network to a smaller one, or as far as its structure."""

from __future__ import annotations

import json
from dataclasses import replace

import click

from aacp.commands.limits import SHORT, Limits, limits
from aacp.commands.options import (
    FROM,
    JSON,
    NO_EXPORT,
    SearchOptions,
    TaskOptions,
    refuse,
    resumable,
    run_option,
    searching,
    show,
    subject,
)
from aacp.commands.recipes import TRAINING_OPTIONS, Training, training

MAX_DROP = click.option(
    "--max-drop",
    type=float,
    metavar="POINTS",
    help="Accuracy first: make --shrink as small as can be while held-out accuracy drops by at most so many points, "
    "0.5 for half a point (with --metric, in its own unit). Limits may stand beside it.",
)


@click.command()
@subject
@limits
@searching
@training
@click.option("--scratch", is_flag=True, help="Train the structure from scratch instead of fine-tuning it.")
@click.option(
    "--no-training", is_flag=True, help="Do not train: keep the inherited weights, with batch norms recalibrated."
)
@NO_EXPORT
@MAX_DROP
@click.option(
    "--shrink", type=click.Choice(list(SHORT)), default="macs", show_default=True, help="What --max-drop makes small."
)
@click.option(
    "--probe-epochs",
    type=int,
    default=0,
    show_default=True,
    help="With --max-drop, judge accuracy after so many epochs of fine-tuning; 0: by the estimate, which is cautious.",
)
@FROM
@run_option("runs/MODEL")
@JSON
def prune(
    subjected: TaskOptions,
    limited: Limits,
    searched: SearchOptions,
    trained: Training,
    scratch: bool,
    no_training: bool,
    no_export: bool,
    max_drop: float | None,
    shrink: str,
    probe_epochs: int,
    known_from: tuple[str, ...],
    folder: str | None,
    as_json: bool,
) -> None:
    """Prune MODEL to a budget: trace, search, inherit, train, evaluate, export, report.

    MODEL is a name that aacp --help explains. The budget is one or more of --prune-... and --max-...; all of them will
    hold. --max-drop asks for the smallest network instead.
    """
    if no_training:
        refuse((*TRAINING_OPTIONS, "scratch", "loss"), "with --no-training nothing is trained", "Train")
    if max_drop is None:
        refuse(("shrink", "probe_epochs"), "without --max-drop the limits decide", "Give --max-drop")
    budget = limited.targets(needed=max_drop is None)
    recipe = None if no_training else trained.chosen(subjected.data, scratch, searched.seed, subjected.loss)
    finish = {"from_scratch": scratch, "train_on_holdout": trained.train_on_holdout, "export": not no_export}
    plan = searched.plan(recipe, **finish)
    if max_drop is not None:
        drop = max_drop if subjected.metric else max_drop / 100
        plan = replace(plan, max_drop=drop, shrink=SHORT[shrink], probe_epochs=probe_epochs)
    from aacp.pipeline.job import PruningJob

    place = subjected.folder(folder)
    with resumable(place):
        pruned = PruningJob(subjected.names(), budget, plan, place, known_from).run()
    show(pruned, pruned.evaluation, as_json)


@click.command()
@subject
@limits
@searching
@FROM
@run_option("runs/MODEL")
@JSON
def search(
    subjected: TaskOptions,
    limited: Limits,
    searched: SearchOptions,
    known_from: tuple[str, ...],
    folder: str | None,
    as_json: bool,
) -> None:
    """Find the best structure of MODEL within a budget of --prune-... and --max-..., and stop there.

    aacp finetune, aacp scratch, or aacp prune with the same options go on from the folder.
    """
    budget = limited.targets()
    from aacp.pipeline.job import PruningJob

    place = subjected.folder(folder)
    with resumable(place):
        choice = PruningJob(subjected.names(), budget, searched.plan(None), place, known_from).search()
    show(f"{choice}\nfolder: {place}", choice, as_json)


@click.command()
@subject
@limits
@searching
@training
@click.option("--train", is_flag=True, help="Train, with the options above, and export every network found.")
@NO_EXPORT
@FROM
@run_option("runs/MODEL-sweep")
@JSON
def sweep(
    subjected: TaskOptions,
    limited: Limits,
    searched: SearchOptions,
    trained: Training,
    train: bool,
    no_export: bool,
    known_from: tuple[str, ...],
    folder: str | None,
    as_json: bool,
) -> None:
    """Search under every combination of several rates, such as --prune-macs 0.3,0.5,0.7 --prune-params 0.2,0.4.

    All searches share what they evaluate; a folder for each and one report on all of them are left in --run.
    """
    if not train:
        refuse(TRAINING_OPTIONS, "without --train a sweep only searches", "Give --train")
    budgets = limited.budgets()
    from aacp.pipeline.job import SweepJob

    recipe = trained.chosen(subjected.data, False, searched.seed, subjected.loss) if train else None
    place = folder or f"{subjected.folder(None)}-sweep"
    plan = searched.plan(recipe, train_on_holdout=trained.train_on_holdout, export=not no_export)
    job = SweepJob(subjected.names(), budgets, plan, place, train, known_from)
    with resumable(place):
        found = job.run()
    click.echo(json.dumps(found.to_json()) if as_json else f"{found}\nfolder: {place}")
