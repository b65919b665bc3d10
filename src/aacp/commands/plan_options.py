"""The options of a task and of a search, and the plan that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from aacp.commands.gathering import Given, gathered
from aacp.commands.options import (
    BATCH,
    CACHE,
    DATA_HELP,
    DEVICE,
    FROZEN,
    HOLDOUT,
    PARTS,
    PRECISION,
    RUNTIME,
    SEARCH_SCOPE,
    STEP_HELP,
    THREADS,
    TIE,
    loss_option,
    metric_option,
)
from aacp.commands.parameters import SEED, step
from aacp.pipeline import defaults
from aacp.search.methods import default_evaluations_text
from aacp.train.recipe import Recipe

if TYPE_CHECKING:
    from aacp.pipeline.plan import Plan


task_options = gathered(
    "task",
    [
        click.argument("model"),
        click.option(
            "--weights",
            type=click.Path(),
            help="File of the trained weights, safetensors or torch. Without it the network keeps the weights that "
            "MODEL is built with, which are untrained unless your function loads them.",
        ),
        click.option("--data", metavar="DATA", required=True, help=f"What to train, search and test on: {DATA_HELP}"),
        HOLDOUT,
        CACHE,
        metric_option("accuracy"),
        loss_option("cross-entropy"),
        DEVICE,
    ],
)
# The parameter names are fields of a Plan; the five of the runtime make its Deployment.
search_options = gathered(
    "search",
    [
        click.option(
            "--step",
            "pruning_step",
            type=step,
            default=defaults.PRUNING_STEP,
            show_default=True,
            help=STEP_HELP,
        ),
        click.option(
            "--method",
            default=defaults.METHOD,
            show_default=True,
            help="Search method: a name of docs/search.md, or package.module:Class, a subclass of aacp.Searcher.",
        ),
        click.option(
            "--evaluations",
            type=int,
            show_default=default_evaluations_text(),
            help="Structures to evaluate in each search.",
        ),
        click.option(
            "--workers",
            metavar="N|auto|ray://HOST:PORT",
            show_default="this process",
            help="Estimate structures on workers: N that Ray starts on this machine; auto, one for each GPU or CPU of "
            "a Ray cluster, started here if none runs; or those of the cluster at an address. Latencies are "
            "measured by this process.",
        ),
        click.option(
            "--proposals",
            type=int,
            show_default=f"{defaults.PROPOSALS_FOR_WORKERS} with --workers, else 1",
            help="Structures without a score that a search keeps proposed, for workers. The result depends on it, but "
            "not on the number of workers.",
        ),
        click.option(
            "--screening",
            type=float,
            metavar="SHARE",
            show_default="all images",
            help="Search on this share of the calibration and held-out images, such as 0.1; the most promising "
            "structures are then scored on all, and the best of them is delivered.",
        ),
        click.option(
            "--importance",
            default=defaults.IMPORTANCE,
            show_default=True,
            help="Channels kept first: l1, l2, bn, random, activation, obs, or package.module:function.",
        ),
        click.option(
            "--reconstruction",
            metavar="repair|none|FUNCTION",
            show_default="repair with --no-training, else none",
            help="How kept weights are corrected: repair fits them to the outputs of the unpruned network, without "
            "labels; none inherits them as they are; package.module:function is your own.",
        ),
        click.option(
            "--calibration",
            "calibration_images",
            type=int,
            default=defaults.CALIBRATION_IMAGES,
            show_default=True,
            help="Training examples that batch norms are recalibrated and weights repaired on, drawn evenly from "
            "all classes.",
        ),
        FROZEN,
        SEARCH_SCOPE,
        TIE,
        PARTS,
        click.option(
            "--seed", type=SEED, default=defaults.SEED, show_default=True, help="Seed of all but the hold-out."
        ),
        RUNTIME,
        click.option("--runs-on", default="cpu", show_default=True, help="Device of the runtime: cpu or cuda."),
        BATCH,
        THREADS,
        PRECISION,
        click.option(
            "--table",
            "latency_table",
            type=click.Path(),
            show_default="measured in the run",
            help="Latency table of aacp measure, for the same runtime, device, batch, threads and precision.",
        ),
    ],
)


def plan_from(search: Given, recipe: Recipe | None, *, trains_later: bool = False, **others: Any) -> Plan:
    """The plan of a run.

    Args:
        search: the values of `search_options`.
        recipe: how to train, or None.
        trains_later: whether a training may follow in another command: weights are then corrected as for one.
        others: fields of the plan that other options decide.
    """
    from aacp.latency.deployment import Deployment
    from aacp.pipeline.functions import FUNCTIONS, imported
    from aacp.pipeline.plan import Plan

    fields = dict(search)
    if fields["reconstruction"] is None:
        fields["reconstruction"] = defaults.RECONSTRUCTION if trains_later else "auto"
    elif fields["reconstruction"] == "none":
        fields["reconstruction"] = None
    deployment = Deployment(
        runtime=fields.pop("runtime"),
        device=fields.pop("runs_on"),
        batch=fields.pop("batch"),
        threads=fields.pop("threads"),
        precision=fields.pop("precision"),
    )
    for name, arguments in FUNCTIONS.items():
        if name in fields:
            fields[name] = imported(fields[name], arguments)
    return Plan(**fields, deployment=deployment, recipe=recipe, **others)
