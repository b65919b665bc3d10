"""Options that several commands share, gathered into one value each."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, cast

import click
from click.core import ParameterSource

from aacp.commands.parameters import Shape, Step
from aacp.train.recipe import Recipe

if TYPE_CHECKING:
    from aacp.pipeline.job import Names
    from aacp.pipeline.plan import Plan
    from aacp.runs.serialisation import Record

Command = Callable[..., Any]


def gathered(kind: type[Any], options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """A decorator that adds options to a command and hands them over as one value, its first argument."""
    names = [field.name for field in fields(kind)]

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def called(*values: Any, **given: Any) -> Any:
            return command(*values, kind(**{name: given.pop(name) for name in names}), **given)

        return functools.reduce(lambda made, option: option(made), reversed(options), cast(Command, called))

    return decorate


def refuse(names: Sequence[str], because: str, remedy: str) -> None:
    """Refuse options that were given, even as their defaults, where they would do nothing."""
    context = click.get_current_context()
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name in names and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
    ]
    if given:
        listed = " and ".join(given)
        raise click.UsageError(f"{listed} would be ignored: {because}. {remedy}, or leave out {listed}.")


@dataclass(frozen=True)
class TaskOptions:
    """A network, its data and its score."""

    model: str
    weights: str | None
    data: str
    metric: str | None
    loss: str | None
    device: str | None

    def names(self) -> Names:
        from aacp.pipeline.job import Names

        return Names(self.model, self.data, self.weights, self.metric, self.device, self.loss)

    def folder(self, given: str | None) -> str:
        return given or f"runs/{re.sub(r'[^A-Za-z0-9._-]+', '-', self.model)}"


def metric_option(default: str) -> Callable[[Command], Command]:
    """What a network is judged by."""
    words = "Score, of which more is better: package.module:function of yours, of (network, batches)."
    return click.option("--metric", metavar="FUNCTION", show_default=default, help=words)


def loss_option(default: str) -> Callable[[Command], Command]:
    """What training minimises."""
    words = "What training minimises: package.module:function of yours, of (outputs, targets)."
    return click.option("--loss", metavar="FUNCTION", show_default=default, help=words)


def run_option(default: str) -> Callable[[Command], Command]:
    """Where a run is kept."""
    words = "Folder for all that is found; the same command with the same folder goes on where it was stopped."
    return click.option("--run", "folder", type=click.Path(), show_default=default, help=words)


DEVICE = click.option(
    "--device", show_default="the GPU if there is one", help="Where to work: cpu, cuda, or cuda:1 for the second GPU."
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print what came out for a machine to read.")
NO_EXPORT = click.option("--no-export", is_flag=True, help="Leave out the ONNX files and the timing of both networks.")
FROM = click.option(
    "--from", "known_from", multiple=True, type=click.Path(), metavar="RUN",
    help="Folder of an earlier run of the same network, whose evaluations are taken over. Repeatable.",
)  # fmt: skip

DATA_HELP = "digits, cifar10:PATH, imagefolder:PATH, or package.module:function of yours."
FROZEN = click.option(
    "--frozen", multiple=True, metavar="PATTERN", help="Layers to leave alone, such as 'head.*'. Repeatable."
)
SCOPE = click.option(
    "--scope", type=click.Choice(["all", "inner"]), default="all", show_default=True,
    help="Where to prune: wherever it can be done, or not in residual streams, only inside their blocks.",
)  # fmt: skip
INPUT = click.option(
    "--input", "shape", type=Shape(), show_default="what MODEL says, or 1x3x224x224", help="Shape of an input."
)
STEP_HELP = (
    "Steps in which widths are cut: a share of each such as 0.125, channels such as 8, or auto: what timing suggests."
)
RUNTIME = click.option(
    "--runtime", default="onnxruntime", show_default=True, metavar="RUNTIME",
    help="What will run the network: onnxruntime, torch, or package.module:NAME. Latency is measured in it.",
)  # fmt: skip
BATCH = click.option(
    "--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Inputs in a timed batch."
)
THREADS = click.option(
    "--threads", type=click.IntRange(min=1), default=2, show_default=True, help="CPU threads it uses."
)

subject = gathered(
    TaskOptions,
    [
        click.argument("model"),
        click.option(
            "--weights",
            type=click.Path(),
            help="File of the trained weights, safetensors or torch. Without it they are those that MODEL is built "
            "with, untrained unless your own function loads them.",
        ),
        click.option("--data", metavar="DATA", required=True, help=f"What to train, search and test on: {DATA_HELP}"),
        metric_option("accuracy"),
        loss_option("cross-entropy"),
        DEVICE,
    ],
)


@dataclass(frozen=True)
class SearchOptions:
    """How to search, and where the network will run."""

    step: float | int | Literal["auto"]
    method: str
    evaluations: int
    importance: str
    calibration: int
    frozen: tuple[str, ...]
    scope: str
    seed: int
    runtime: str
    runs_on: str
    batch: int
    threads: int
    table: str | None

    def plan(self, recipe: Recipe | None, **others: Any) -> Plan:
        """The plan of a run that searches like this; `others` are fields of it that other options decide."""
        from aacp.latency.deployment import Deployment
        from aacp.pipeline.plan import Plan

        return Plan(
            pruning_step=self.step,
            method=self.method,
            evaluations=self.evaluations,
            recipe=recipe,
            importance=self.importance,
            calibration_images=self.calibration,
            frozen=self.frozen,
            scope=self.scope,
            seed=self.seed,
            deployment=Deployment(self.runtime, self.runs_on, self.batch, self.threads),
            latency_table=self.table,
            **others,
        )


searching = gathered(
    SearchOptions,
    [
        click.option("--step", type=Step(), default=1 / 8, show_default=True, help=STEP_HELP),
        click.option(
            "--method", default="default", show_default=True, help="How to search; docs/search.md lists them."
        ),
        click.option("--evaluations", type=int, default=200, show_default=True, help="Structures to try."),
        click.option(
            "--importance", default="l1", show_default=True, help="Channels kept first: l1, l2, bn or random."
        ),
        click.option(
            "--calibration",
            type=int,
            default=4096,
            show_default=True,
            help="Training examples that batch norms are recalibrated on.",
        ),
        FROZEN,
        SCOPE,
        click.option("--seed", type=int, default=0, show_default=True, help="Of all that is random."),
        RUNTIME,
        click.option("--runs-on", default="cpu", show_default=True, help="Device of the runtime: cpu or cuda."),
        BATCH,
        THREADS,
        click.option(
            "--table",
            type=click.Path(),
            show_default="measured in the run",
            help="Latency table of aacp measure, for the same runtime, device, batch and threads.",
        ),
    ],
)


@contextmanager
def resumable(folder: str) -> Iterator[None]:
    """Ctrl-C says how to go on, and ends with 130."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"Interrupted. The same command goes on with what is in {folder}.", err=True)
        sys.exit(130)


def show(found: object, record: Record, as_json: bool) -> None:
    """A result for people, or its record for a machine."""
    click.echo(json.dumps(record.to_json()) if as_json else str(found))
