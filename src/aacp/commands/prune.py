"""aacp prune, search, sweep: from a trained network to a smaller one, or as far as its structure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from aacp.commands.gathering import reject_options
from aacp.commands.limits import COST_NAMES, budget_of, budgets_of, limit_options
from aacp.commands.options import FROM, JSON, run_option
from aacp.commands.parameters import Name, Number, rungs
from aacp.commands.plan_options import plan_from, search_options, task_options
from aacp.commands.recipes import (
    TRAINING_OPTIONS,
    recipe_of,
    teacher_names,
    training_fields,
    training_means,
    training_options,
)
from aacp.commands.running import resumable, run_folder, show
from aacp.cost.kinds import COSTS
from aacp.pipeline import defaults
from aacp.user.values import MAX_SCORE

MAX_DROP = click.option(
    "--max-drop",
    type=Number(0, MAX_SCORE),
    metavar="POINTS",
    help="Accuracy first: reduce --shrink as far as held-out accuracy drops by at most POINTS, 0.5 for half a point "
    "(with --metric, in its own unit). Limits on other costs may be given too.",
)
SHRINK = click.option(
    "--shrink",
    type=Name(COST_NAMES),
    default=COSTS[defaults.SHRINK].option,
    show_default=True,
    help="Cost that --max-drop reduces.",
)
PROBE_EPOCHS = click.option(
    "--probe-epochs",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="With --max-drop, score structures after this number of epochs of fine-tuning; 0 uses the estimate, which is "
    "cautious.",
)
FINALISTS = click.option(
    "--finalists",
    type=click.IntRange(min=2),
    metavar="N",
    help="Compare the N best structures of the search by short trainings, the uniform one among them, and "
    "deliver the one with the best score on the hold-out.",
)
RUNGS = click.option(
    "--rungs",
    type=rungs,
    metavar="EPOCHS,...",
    show_default="3 %, 10 % and 30 % of the epochs of the recipe",
    help="With --finalists, the epochs of these trainings: all finalists have the first, the best of them the next.",
)


@click.command()
@task_options
@limit_options
@search_options
@training_options
@click.option(
    "--no-training",
    is_flag=True,
    help="Do not train: keep the inherited weights, repaired without labels. The data need none.",
)
@click.option(
    "--mimic",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="With --no-training, let the network learn from the calibration images, in this number of steps and without "
    "labels, to reproduce the outputs of the unpruned one.",
)
@MAX_DROP
@SHRINK
@PROBE_EPOCHS
@FINALISTS
@RUNGS
@FROM
@run_option("runs/MODEL")
@JSON
def prune(
    task: dict[str, Any],
    limits: dict[str, Any],
    search: dict[str, Any],
    training: dict[str, Any],
    no_training: bool,
    mimic: int | None,
    max_drop: float | None,
    shrink: str,
    probe_epochs: int,
    finalists: int | None,
    rungs: tuple[int, ...] | None,
    known_from: tuple[str, ...],
    folder: str | None,
    as_json: bool,
) -> None:
    """Prune MODEL to a budget: search, train, evaluate, export, report.

    MODEL is a name that aacp --help explains. The budget is one or more of --prune-... and --max-...; all of them will
    hold. --max-drop requests the smallest network instead.
    """
    if no_training:
        used = {"training", "again", "no_export", "resources"}
        unused = {*TRAINING_OPTIONS, "loss", "finalists", "rungs"} - used
        reject_options(sorted(unused), "with --no-training nothing is trained", "Train")
    else:
        reject_options(("mimic",), "a training with labels follows", "Give --no-training")
    if finalists is None:
        reject_options(("rungs",), "without --finalists the search decides", "Give --finalists")
    if max_drop is None:
        reject_options(("shrink", "probe_epochs"), "without --max-drop the limits decide", "Give --max-drop")
    teacher = teacher_names(training)
    budget = budget_of(limits, needed=max_drop is None)
    plan = plan_from(
        search,
        None if no_training else recipe_of(training, task, search["seed"]),
        **training_fields(training),
        mimic=mimic or 0,
        finalists=finalists,
        rungs=rungs or (),
        max_drop=max_drop if max_drop is None or task["metric"] else max_drop / 100,
        shrink=COST_NAMES[shrink],
        probe_epochs=probe_epochs,
    )
    from aacp.pipeline.job import TaskNames, pruning_run

    place = run_folder(task["model"], folder)
    names = TaskNames(**task, **teacher)
    with resumable(place):
        pruned = pruning_run(names, budget, plan, place, known_from, training_means(training)).prune()
    show(pruned, pruned.to_json(), as_json)


@click.command()
@task_options
@limit_options
@search_options
@FROM
@run_option("runs/MODEL")
@JSON
def search(
    task: dict[str, Any],
    limits: dict[str, Any],
    search: dict[str, Any],
    known_from: tuple[str, ...],
    folder: str | None,
    as_json: bool,
) -> None:
    """Find the best structure of MODEL within a budget of --prune-... and --max-..., and stop there.

    aacp finetune, aacp scratch, or aacp prune with the same options continue from the folder; for aacp prune
    --no-training, search with --reconstruction repair.
    """
    budget = budget_of(limits)
    from aacp.pipeline.job import TaskNames, pruning_run

    place = run_folder(task["model"], folder)
    with resumable(place):
        plan = plan_from(search, None, trains_later=True)
        graph, choice = pruning_run(TaskNames(**task), budget, plan, place, known_from).find()
    kept = graph.channels_of(choice.counts)
    show(f"{choice}\nkept: {kept}\nfolder: {place}", {**choice.described(), "kept": kept, "folder": place}, as_json)


@click.command()
@task_options
@limit_options
@search_options
@training_options
@click.option("--train", is_flag=True, help="Train, with the options above, and export every network found.")
@FROM
@run_option("runs/MODEL-sweep")
@JSON
def sweep(
    task: dict[str, Any],
    limits: dict[str, Any],
    search: dict[str, Any],
    training: dict[str, Any],
    train: bool,
    known_from: tuple[str, ...],
    folder: str | None,
    as_json: bool,
) -> None:
    """Search under every combination of several rates, such as --prune-macs 0.3,0.5,0.7 --prune-params 0.2,0.4.

    All searches share their evaluations; --run holds a folder for each and one report on all of them.
    """
    if not train:
        unused = {*TRAINING_OPTIONS} - {"no_export"}
        reject_options(sorted(unused), "without --train a sweep only searches", "Give --train")
    teacher = teacher_names(training)
    budgets = budgets_of(limits)
    from aacp.pipeline.job import TaskNames, sweep_run
    from aacp.pipeline.reporting import report_line

    place = run_folder(task["model"], folder, "-sweep")
    plan = plan_from(
        search,
        recipe_of(training, task, search["seed"]) if train else None,
        trains_later=True,
        **training_fields(training),
    )
    names = TaskNames(**task, **teacher)
    with resumable(place):
        found = sweep_run(names, budgets, plan, place, train, known_from, training_means(training)).sweep()
    line = report_line(Path(place), found.unreported)
    show(f"{found}\nfolder: {place}\n{line}", found.to_json(), as_json)
