"""Options that several commands share, passed as one dictionary each."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import click
from click.core import ParameterSource

from aacp.commands.border import INTERRUPTED
from aacp.commands.parameters import SEED, Names, Part, Shape, Step
from aacp.errors import InvalidExample
from aacp.pipeline import defaults
from aacp.search.methods import default_evaluations_text
from aacp.train.recipe import Recipe

if TYPE_CHECKING:
    from torch import nn

    from aacp.pipeline.job import TaskNames
    from aacp.pipeline.plan import Plan
    from aacp.runs.serialisation import Record

Command = Callable[..., Any]


def gathered(argument: str, options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """A decorator that adds options to a command and passes their values as one dictionary, by parameter name.

    Args:
        argument: the name of the command's argument that takes the dictionary.
        options: made by click.option or click.argument.
    """
    names = _parameter_names(options)

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def called(**given: Any) -> Any:
            return command(**{argument: {name: given.pop(name) for name in names}}, **given)

        return functools.reduce(lambda made, option: option(made), reversed(options), cast(Command, called))

    return decorate


def _parameter_names(options: Sequence[Callable[[Command], Command]]) -> list[str]:
    """The parameter names that click gives to options."""

    def probe() -> None:
        """Options are added to this function, only to read their names."""

    for option in options:
        option(probe)
    return [parameter.name for parameter in probe.__click_params__]  # type: ignore[attr-defined]


def reject_options(names: Sequence[str], because: str, remedy: str) -> None:
    """Reject options that were given, even with their default values, but would have no effect."""
    context = click.get_current_context()
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        listed = " and ".join(given)
        raise click.UsageError(f"{listed} would be ignored: {because}. {remedy}, or leave out {listed}.")


Given = Mapping[str, Any]  # the values of options, by parameter name


def task_names(task: Given) -> TaskNames:
    """The network, its data and its functions, as named by the task options."""
    from aacp.pipeline.job import TaskNames

    return TaskNames(**task)


def run_folder(model: str, given: str | None) -> str:
    """The folder of --run, or one named after the model."""
    return given or f"runs/{file_name(model)}"


def file_name(text: str) -> str:
    """Text as the name of a file or folder: runs of other characters than letters, digits, ., _ and - become a -."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)


def metric_option(default: str) -> Callable[[Command], Command]:
    """The score function."""
    words = "Score, higher is better: package.module:function, called with (network, batches)."
    return click.option("--metric", metavar="FUNCTION", show_default=default, help=words)


def loss_option(default: str) -> Callable[[Command], Command]:
    """The loss function."""
    words = "What training minimises: package.module:function, called with (outputs, targets)."
    return click.option("--loss", metavar="FUNCTION", show_default=default, help=words)


def run_option(default: str) -> Callable[[Command], Command]:
    """The run folder."""
    words = "Folder for all results; the same command with the same folder resumes an interrupted run."
    return click.option("--run", "folder", type=click.Path(), show_default=default, help=words)


DEVICE = click.option(
    "--device",
    show_default="the GPU if there is one",
    help="Where to compute: cpu, cuda, or cuda:1 for the second GPU.",
)
TRUST = click.option(
    "--trust", is_flag=True, help="Import the code that the folder or file names. Only for those whose maker you trust."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
NO_EXPORT = click.option("--no-export", is_flag=True, help="Skip the ONNX files and the timing of both networks.")
RESOURCES = click.option(
    "--resources", is_flag=True, help="Measure memory and energy of both exported networks, about 10 seconds in all."
)
FROM = click.option(
    "--from", "known_from", multiple=True, type=click.Path(), metavar="RUN",
    help="Folder of an earlier run of the same network, whose evaluations are reused. Repeatable.",
)  # fmt: skip

HOLDOUT = click.option(
    "--holdout", type=Part(), show_default="0.1, and at most 5000 examples",
    help="Part of the training data that is held out for the search: a share such as 0.1, or a number such as 5000.",
)  # fmt: skip
CACHE = click.option(
    "--cache", type=click.Path(file_okay=False), metavar="DIR",
    help="Folder for decoded images of imagefolder:PATH, which later passes and commands read instead of the files.",
)  # fmt: skip
DATA_HELP = "digits, cifar10:PATH, imagefolder:PATH, tensors:FILE, or package.module:function that returns aacp.Data."
FROZEN = click.option(
    "--frozen", multiple=True, metavar="PATTERN", help="Layers that are not pruned, such as 'head.*'. Repeatable."
)
SCOPE_CHOICES = click.Choice(["all", "inner", "paper"])
SCOPE_HELP = (
    "Where to prune: all, inner to leave residual streams alone, or paper for the coordinates that the paper's authors "
    "searched."
)
SCOPE = click.option("--scope", type=SCOPE_CHOICES, default=defaults.SCOPE, show_default=True, help=SCOPE_HELP)
SEARCH_SCOPE = click.option(
    "--scope", type=SCOPE_CHOICES, show_default=f"{defaults.SCOPE}; inner for --method uniform", help=SCOPE_HELP
)
TIE = click.option(
    "--tie", multiple=True, type=Names(), metavar="GROUPS",
    help="Groups that keep the same share of their widths, such as layer1.0.conv1,layer1.0.conv2. Repeatable.",
)  # fmt: skip
PARTS = click.option(
    "--part", "parts", multiple=True, metavar="NAME",
    help="A part of the network that is pruned, such as backbone; the rest is left as it is. Repeatable.",
)  # fmt: skip
INPUT = click.option(
    "--input", "shape", type=Shape(), show_default="what MODEL says, or 1x3x224x224", help="Shape of an input."
)
STEP_HELP = (
    "Steps in which widths are reduced: a share of each such as 0.125, channels such as 8, or auto: found by timing."
)
RUNTIME = click.option(
    "--runtime", default="onnxruntime", show_default=True, metavar="RUNTIME",
    help="Runtime that latency is measured in: onnxruntime, torch, torch-compile, cuda-graphs, openvino, executorch, "
    "ncnn, or package.module:NAME.",
)  # fmt: skip
BATCH = click.option(
    "--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Inputs in a timed batch."
)
THREADS = click.option(
    "--threads", type=click.IntRange(min=1), default=2, show_default=True, help="CPU threads of the runtime."
)
PRECISION = click.option(
    "--precision", type=click.Choice(["float32", "int8"]), default="float32", show_default=True,
    help="Precision that the network runs in there: float32, or int8 for a quantised network (onnxruntime).",
)  # fmt: skip

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
            type=Step(),
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
            "a Ray cluster, started here if none runs; or those of the cluster at an address.",
        ),
        click.option(
            "--proposals",
            type=int,
            show_default="8 with --workers, else 1",
            help="Structures without a score that a search keeps proposed, for workers. The result depends on it, but "
            "not on the number of workers.",
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
        click.option("--seed", type=SEED, default=defaults.SEED, show_default=True, help="Seed of everything random."),
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


def plan_from(search: Given, recipe: Recipe | None, **others: Any) -> Plan:
    """The plan of a run.

    Args:
        search: the values of `search_options`.
        recipe: how to train, or None.
        others: fields of the plan that other options decide.
    """
    from aacp.latency.deployment import Deployment
    from aacp.pipeline.functions import imported
    from aacp.pipeline.plan import Plan
    from aacp.pipeline.request import FUNCTIONS

    fields = dict(search)
    fields["reconstruction"] = {None: "auto", "none": None}.get(fields["reconstruction"], fields["reconstruction"])
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


def before_training(search: Given) -> Given:
    """The values of `search_options` for a search that a training may follow: weights are corrected as for it."""
    given = search["reconstruction"]
    return {**search, "reconstruction": (defaults.RECONSTRUCTION or "none") if given is None else given}


@contextmanager
def resumable(folder: str) -> Iterator[None]:
    """After Ctrl-C, say how to resume and exit with 130."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted. The same command resumes from {folder}.", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


@contextmanager
def guessed_input(network: nn.Module, shape: tuple[int, ...] | None) -> Iterator[None]:
    """Name --input if the command guessed the shape of an input, because neither it nor the network names one.

    Args:
        network: the network of the command.
        shape: the shape that --input gave, if it was given.
    """
    from aacp.zoo.models import IMAGE, likely_shape, named_input_size

    if shape is not None or named_input_size(network) is not None:
        yield
        return
    guess = "x".join(map(str, (1, *IMAGE)))
    try:
        yield
    except InvalidExample as error:
        likely = "x".join(map(str, likely_shape(network)))
        raise InvalidExample(
            f"The network does not name the shape of its inputs, and it does not run on {guess}, which was tried. Give "
            f"the shape, such as --input {likely}."
        ) from error
    click.echo(f"The network does not name the shape of its inputs. {guess} was used; --input gives another.", err=True)


def show(found: object, record: Record, as_json: bool) -> None:
    """Print a result as text, or its record as JSON."""
    click.echo(json.dumps(record.to_json()) if as_json else str(found))
