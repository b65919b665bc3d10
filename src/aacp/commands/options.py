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

from aacp.commands.parameters import Step
from aacp.train.recipe import Recipe

if TYPE_CHECKING:
    from aacp.pipeline.job import Names
    from aacp.pipeline.plan import Plan
    from aacp.record import Record

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


@dataclass(frozen=True)
class Subjected:
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


METRIC = click.option("--metric", help="package.module:function of yours, of (network, batches), instead of accuracy.")
LOSS = click.option("--loss", help="package.module:function of yours, of (outputs, targets), not cross-entropy.")
DEVICE = click.option("--device", help="cpu, cuda or cuda:1; by default the GPU if there is one.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print what came out for a machine to read.")
NO_EXPORT = click.option("--no-export", is_flag=True, help="Leave out the ONNX files and the timing of both networks.")
RUN = click.option(
    "--run", "folder", type=click.Path(), help="Folder of the run, runs/MODEL by default; it can be resumed."
)
FROM = click.option(
    "--from", "known_from", multiple=True, type=click.Path(), metavar="RUN",
    help="Folder of an earlier run of the same network, whose evaluations are taken over. Repeatable.",
)  # fmt: skip

DATA_HELP = "digits, cifar10:PATH, imagefolder:PATH or package.module:function."
FROZEN = click.option(
    "--frozen", multiple=True, metavar="PATTERN", help="Layers to leave alone, such as 'head.*'. Repeatable."
)
SCOPE = click.option(
    "--scope", type=click.Choice(["all", "inner"]), default="all", help="inner: leave residual streams alone."
)

STEP_HELP = "Share of a width such as 0.125, channels such as 8, or auto: found by timing."
RUNTIME = click.option(
    "--runtime", type=click.Choice(["onnxruntime", "torch"]), default="onnxruntime", show_default=True,
    help="What runs the network where its latency counts.",
)  # fmt: skip
BATCH = click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True, help="Inputs at once there.")
THREADS = click.option("--threads", type=click.IntRange(min=1), default=2, show_default=True, help="Of the runtime.")

subject = gathered(
    Subjected,
    [
        click.argument("model"),
        click.option("--weights", type=click.Path(), help="File of the trained weights; safetensors or torch."),
        click.option("--data", required=True, help=DATA_HELP),
        METRIC,
        LOSS,
        DEVICE,
    ],
)


@dataclass(frozen=True)
class Searching:
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

    def plan(self, recipe: Recipe | None, scratch: bool = False, export: bool = True) -> Plan:
        from aacp.latency.deployment import Deployment
        from aacp.pipeline.plan import Plan

        return Plan(
            pruning_step=self.step,
            method=self.method,
            evaluations=self.evaluations,
            recipe=recipe,
            from_scratch=scratch,
            importance=self.importance,
            calibration_images=self.calibration,
            frozen=self.frozen,
            scope=self.scope,
            export=export,
            seed=self.seed,
            deployment=Deployment(self.runtime, self.runs_on, self.batch, self.threads),
            latency_table=self.table,
        )


searching = gathered(
    Searching,
    [
        click.option("--step", type=Step(), default=1 / 8, show_default=True, help=STEP_HELP),
        click.option("--method", default="default", show_default=True, help="Search method; see docs/search.md."),
        click.option("--evaluations", type=int, default=200, show_default=True, help="Structures to estimate."),
        click.option("--importance", default="l1", show_default=True, help="l1, l2, bn or random."),
        click.option("--calibration", type=int, default=4096, show_default=True, help="Images to recalibrate on."),
        FROZEN,
        SCOPE,
        click.option("--seed", type=int, default=0, show_default=True, help="Of hold-out, search and training."),
        RUNTIME,
        click.option("--runs-on", default="cpu", show_default=True, help="Device that latencies are measured on."),
        BATCH,
        THREADS,
        click.option("--table", type=click.Path(), help="File that aacp measure wrote with the same four options."),
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
