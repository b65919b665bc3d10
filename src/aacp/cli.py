"""The command line: every command parses its options, calls the library once, and prints the result."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import click

from aacp.bench.commands import bench
from aacp.commands.border import Commands
from aacp.commands.check import check
from aacp.commands.finish import evaluate, finetune, scratch
from aacp.commands.measure import measure
from aacp.commands.options import (
    CACHE,
    DATA_HELP,
    DEVICE,
    FROZEN,
    HOLDOUT,
    INPUT,
    JSON,
    PARTS,
    SCOPE,
    TIE,
    TRUST,
    run_option,
)
from aacp.commands.parameters import SEED, Name, shape
from aacp.commands.prune import prune, search, sweep
from aacp.commands.recipes import RECIPE_NAME, recipe_named, teacher_names
from aacp.commands.repeat import repeat
from aacp.commands.running import guessed_input, resumable, run_folder, show
from aacp.train.recipe import FINETUNE, Precision
from aacp.version import __version__
from aacp.zoo.catalogue import named_data


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aacp")
def main() -> None:
    """Automatic channel pruning of convolutional networks.

    MODEL is vgg16, resnet20, resnet56, resnet110, mobilenet_v2 (for CIFAR-10), digits_resnet, torchvision:NAME,
    timm:NAME, or package.module:function for your function that returns a network.
    """


@main.command()
@click.argument("model")
@INPUT
@FROZEN
@SCOPE
@TIE
@PARTS
@click.option(
    "--form",
    type=Name(["module", "exported"]),
    default="module",
    show_default=True,
    help="Form of cut networks: modules of the same class, or exported programs.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the graph and its costs as JSON.")
def trace(
    model: str,
    shapes: tuple[tuple[int, ...], ...],
    frozen: tuple[str, ...],
    scope: str,
    tie: tuple[tuple[str, ...], ...],
    parts: tuple[str, ...],
    form: str,
    as_json: bool,
) -> None:
    """Show the channel groups of MODEL: widths, what is frozen and why, MACs and parameters."""
    from aacp.cost.kinds import computed_costs
    from aacp.graph.tracing import trace as trace_network
    from aacp.zoo.models import build_model, example_inputs

    network = build_model(model)
    example = example_inputs(network, shapes)
    with guessed_input(network, shapes):
        graph = trace_network(network, example, frozen=frozen, scope=scope, tie=tie, parts=parts or None, form=form)
    costs = {cost.name: cost.full for cost in computed_costs(graph)}
    show(graph, {"costs": costs, "graph": graph.to_json()}, as_json)


@main.command()
@click.argument("model")
@click.option("--data", metavar="DATA", required=True, help=f"What to train on: {DATA_HELP}")
@HOLDOUT
@CACHE
@click.option("--recipe", "name", type=RECIPE_NAME, help="By default digits for the digits, else base.")
@click.option("--epochs", type=int, help="Scale the recipe to this number of epochs, with its milestones.")
@click.option("--batch-size", type=int, help="Examples in a step, of all processes together, instead of the recipe's.")
@click.option("--lr", type=float, help="First learning rate, instead of the recipe's.")
@click.option("--precision", type=Name(get_args(Precision)), help="By default bf16 on GPUs that have it, else single.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of weights, order and augmentation.")
@click.option(
    "--weights", type=click.Path(), help="File of weights to start from; by default they are drawn at random."
)
@click.option("--teacher", help="MODEL to distil from; needs --teacher-weights.")
@click.option("--teacher-weights", type=click.Path(), help="File of the teacher's weights.")
@run_option("runs/MODEL-base")
@DEVICE
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes on this machine, a GPU each.",
)
@click.option("--tensorboard", is_flag=True, help="Write files for TensorBoard into the run folder.")
@click.option(
    "--until",
    type=click.IntRange(min=1),
    help="Stop after this epoch, with the rates of the whole recipe, and write weights-UNTIL.safetensors. The same "
    "command with a later epoch or without --until continues.",
)
@click.option("--train-on-holdout", is_flag=True, help="Train on the hold-out too, and do not score it.")
@JSON
def train(
    model: str,
    data: str,
    holdout: float | None,
    cache: str | None,
    name: str | None,
    epochs: int | None,
    batch_size: int | None,
    lr: float | None,
    precision: Precision | None,
    seed: int,
    weights: str | None,
    teacher: str | None,
    teacher_weights: str | None,
    folder: str | None,
    device: str | None,
    processes: int,
    tensorboard: bool,
    until: int | None,
    train_on_holdout: bool,
    as_json: bool,
) -> None:
    """Train MODEL and keep its weights in a run folder; the same command again resumes an interrupted training."""
    from aacp.train.job import TrainingJob

    recipe = recipe_named(name or named_data(data).recipe).changed(epochs, batch_size, lr, precision, seed)
    teacher_names({"teacher": teacher, "teacher_weights": teacher_weights})  # rejects one without the other
    if teacher is not None and not recipe.distillation:
        recipe = replace(recipe, distillation=FINETUNE.distillation)
    folder = run_folder(model, folder, "-base")
    job = TrainingJob(
        model, data, recipe, folder, weights, teacher, teacher_weights, device, processes, tensorboard, until,
        train_on_holdout, holdout=holdout, cache=cache,
    )  # fmt: skip
    with resumable(folder):
        found = job.run()
    show("\n".join(f"{name}: {value}" for name, value in found.items()), found, as_json)


@main.command()
@click.argument("runs", nargs=-1, required=True, type=click.Path(), metavar="RUN [RUN ...]")
@click.option(
    "--out", type=click.Path(), help="File to write; by default report.html in the folder that holds all runs."
)
@click.option("--json", "as_json", is_flag=True, help="Print the path of the page as JSON.")
def report(runs: tuple[str, ...], out: str | None, as_json: bool) -> None:
    """Write one page about one run folder, or about several side by side; it can be read offline.

    Of a folder that holds several runs, such as a sweep's, all are shown.
    """
    from aacp.report.page import runs_in, write_report
    from aacp.report.run import read_run

    page = write_report(runs, out)
    for folder in (place for given in runs for place in runs_in(given)):
        if read_run(folder).is_empty:
            click.echo(f"{folder} holds nothing to show.", err=True)
    show(f"report: {page}", {"report": str(page)}, as_json)


@main.command()
@click.argument("path", metavar="RUN_OR_FILE", type=click.Path())
@click.option("--model", help="MODEL that was pruned, if the file does not record it.")
@click.option("--input", "shape", type=shape, help="Shape of the example, if the file does not record it.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    help="File to write; by default the same name with the suffix .onnx, or with the options in it if a run delivered "
    "that file.",
)
@click.option("--opset", type=int, default=18, show_default=True, help="Version of the ONNX operators.")
@click.option("--batch", type=click.IntRange(min=1), help="Fix the batch size; by default any size is accepted.")
@click.option("--dynamic-size", is_flag=True, help="Accept other heights and widths than those of the example.")
@TRUST
@JSON
def export(
    path: str,
    model: str | None,
    shape: tuple[int, ...] | None,
    out: str | None,
    opset: int,
    batch: int | None,
    dynamic_size: bool,
    trust: bool,
    as_json: bool,
) -> None:
    """Write the pruned network of a run folder or of a .safetensors file as ONNX, compared with torch."""
    from aacp.artefact.onnx import export_artefact

    found = export_artefact(
        path, out, model=model, shape=shape, opset=opset, batch=batch, dynamic_size=dynamic_size, trust=trust
    )
    show(found, found.to_json(), as_json)


for command in (prune, search, sweep, repeat, measure, finetune, scratch, evaluate, check, bench):
    main.add_command(command)

if __name__ == "__main__":
    main()
