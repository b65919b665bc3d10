"""aacp prune: the whole way from a trained network to a smaller one."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import click

from aacp.train.recipe import DIGITS, FINETUNE, RECIPES, Recipe

# The digits are few: they need less time, and their teacher knows little more than the labels.
DIGITS_FINETUNE = replace(DIGITS.scaled(20), lr=0.03, distillation=0.5)


@click.command()
@click.argument("model")
@click.option("--weights", type=click.Path(), help="File of the trained weights; safetensors or torch.")
@click.option("--data", required=True, help="digits, cifar10:PATH, imagefolder:PATH or package.module:function.")
@click.option("--prune-macs", type=float, metavar="RATE", help="Share of the MACs to remove, such as 0.5.")
@click.option("--prune-params", type=float, metavar="RATE", help="Share of the parameters to remove.")
@click.option("--prune-memory", type=float, metavar="RATE", help="Share of the peak activation memory to remove.")
@click.option("--max-macs", type=float, metavar="N", help="Most MACs to keep.")
@click.option("--max-params", type=float, metavar="N", help="Most parameters to keep.")
@click.option("--max-memory", type=float, metavar="BYTES", help="Most activation memory to keep.")
@click.option("--step", type=float, default=0.125, show_default=True, help="Share of a width; from 1 on, channels.")
@click.option("--method", default="default", show_default=True, help="Search method; see docs/search.md.")
@click.option("--evaluations", type=int, default=200, show_default=True, help="Structures to estimate.")
@click.option("--recipe", type=click.Choice(list(RECIPES)), help="By default our own for fine-tuning.")
@click.option("--epochs", type=int, help="Cut or stretch the recipe to so many.")
@click.option("--scratch", is_flag=True, help="Train the structure from scratch instead of fine-tuning it.")
@click.option("--no-training", is_flag=True, help="Stop at the inherited, recalibrated network.")
@click.option("--importance", default="l1", show_default=True, help="l1, l2, bn or random.")
@click.option("--calibration", type=int, default=4096, show_default=True, help="Images to recalibrate on.")
@click.option("--metric", help="package.module:function of yours, of (network, batches), instead of accuracy.")
@click.option("--frozen", multiple=True, metavar="PATTERN", help="Layers to leave alone, such as 'head.*'. Repeatable.")
@click.option(
    "--scope", type=click.Choice(["all", "inner"]), default="all", help="inner: leave residual streams alone."
)
@click.option("--run", "folder", type=click.Path(), help="Folder of the run, runs/MODEL by default; it can be resumed.")
@click.option("--device", help="cpu, cuda or cuda:1; by default the GPU if there is one.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of search and training.")
@click.option("--json", "as_json", is_flag=True, help="Print what came out for a machine to read.")
def prune(
    model: str,
    weights: str | None,
    data: str,
    prune_macs: float | None,
    prune_params: float | None,
    prune_memory: float | None,
    max_macs: float | None,
    max_params: float | None,
    max_memory: float | None,
    step: float,
    method: str,
    evaluations: int,
    recipe: str | None,
    epochs: int | None,
    scratch: bool,
    no_training: bool,
    importance: str,
    calibration: int,
    metric: str | None,
    frozen: tuple[str, ...],
    scope: str,
    folder: str | None,
    device: str | None,
    seed: int,
    as_json: bool,
) -> None:
    """Prune MODEL to a budget: trace, search, inherit, train, evaluate.

    Several limits may be given; all of them will hold. The same command again goes on where it was stopped.
    """
    from aacp.plan import Plan, targets

    rates = {"macs": prune_macs, "params": prune_params, "activation_bytes": prune_memory}
    limits = targets(rates, {"macs": max_macs, "params": max_params, "activation_bytes": max_memory})
    plan = Plan(
        limits,
        pruning_step=step if step < 1 else int(step),
        method=method,
        evaluations=evaluations,
        recipe=None if no_training else _recipe(recipe, data, scratch).changed(epochs, seed=seed),
        from_scratch=scratch,
        importance=importance,
        calibration_images=calibration,
        frozen=frozen,
        scope=scope,
        seed=seed,
    )
    from aacp.job import PruningJob

    folder = folder or f"runs/{re.sub(r'[^A-Za-z0-9._-]+', '-', model)}"
    try:
        pruned = PruningJob(model, data, folder, plan, weights, metric, device).run()
    except KeyboardInterrupt:
        click.echo(f"Interrupted. The same command goes on with what is in {folder}.", err=True)
        sys.exit(130)
    click.echo(json.dumps(pruned.evaluation.to_json()) if as_json else str(pruned))


def _recipe(name: str | None, data: str, scratch: bool) -> Recipe:
    if name is not None:
        return RECIPES[name]
    if data == "digits":
        return DIGITS if scratch else DIGITS_FINETUNE
    return RECIPES["base"] if scratch else FINETUNE
