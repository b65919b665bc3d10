"""Options that several commands share, gathered into one value each."""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, cast

import click

from aacp.train.recipe import DIGITS, FINETUNE, RECIPES, Recipe

if TYPE_CHECKING:
    from aacp.pipeline.job import Names
    from aacp.pipeline.plan import Plan
    from aacp.records import Record, Target

# The digits are few: they need less time, and their teacher knows little more than the labels.
DIGITS_FINETUNE = replace(DIGITS.scaled(20), lr=0.03, distillation=0.5)
SHORT = {"macs": "macs", "params": "params", "size": "weight_bytes", "memory": "activation_bytes"}
WORDS = {
    "macs": "multiply-accumulates of one input",
    "params": "parameters",
    "size": "bytes of the weights",
    "memory": "bytes of activations alive at once",
}

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
class Limits:
    """What is asked of each cost, as it was written: a list of shares to remove, and the most to keep."""

    prune_macs: str | None
    prune_params: str | None
    prune_size: str | None
    prune_memory: str | None
    max_macs: str | None
    max_params: str | None
    max_size: str | None
    max_memory: str | None

    def targets(self) -> tuple[Target, ...]:
        """The limits of one run."""
        budgets = self.budgets()
        if len(budgets) > 1:
            raise click.UsageError("Several rates were given for one limit. Give one, or use aacp sweep.")
        return budgets[0]

    def budgets(self) -> tuple[tuple[Target, ...], ...]:
        """Every combination of the rates."""
        from aacp.pipeline.targets import targets

        rates = {cost: _rates(name, getattr(self, f"prune_{name}")) for name, cost in SHORT.items()}
        most = {cost: getattr(self, f"max_{name}") for name, cost in SHORT.items()}
        if both := [cost for cost in rates if rates[cost] and most[cost]]:
            raise click.UsageError(f"{both[0]} has both a share to remove and a most to keep. Give one of them.")
        fixed = {cost: text for cost, text in most.items() if text is not None}
        varied = {cost: values for cost, values in rates.items() if values}
        combined = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
        return tuple(targets({**rate, **fixed}) for rate in combined)


def _rates(name: str, text: str | None) -> list[float]:
    try:
        return [] if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no share to remove. Write 0.5, or 0.3,0.5 in a sweep.", param_hint=f"--prune-{name}"
        ) from None


def _rate_option(name: str) -> Callable[[Command], Command]:
    return click.option(f"--prune-{name}", metavar="RATE", help=f"Share of the {WORDS[name]} to remove.")


def _most_option(name: str, example: str) -> Callable[[Command], Command]:
    return click.option(f"--max-{name}", metavar="N", help=f"Most {WORDS[name]} to keep, such as {example}.")


limits = gathered(
    Limits,
    [
        *(_rate_option(name) for name in SHORT),
        _most_option("macs", "60M"),
        _most_option("params", "500k"),
        _most_option("size", "2MB"),
        _most_option("memory", "512kB"),
    ],
)


@dataclass(frozen=True)
class Searching:
    """How to search."""

    step: float
    method: str
    evaluations: int
    importance: str
    calibration: int
    frozen: tuple[str, ...]
    scope: str
    seed: int

    def plan(self, recipe: Recipe | None, scratch: bool = False) -> Plan:
        from aacp.pipeline.plan import Plan

        return Plan(
            pruning_step=self.step if self.step < 1 else int(self.step),
            method=self.method,
            evaluations=self.evaluations,
            recipe=recipe,
            from_scratch=scratch,
            importance=self.importance,
            calibration_images=self.calibration,
            frozen=self.frozen,
            scope=self.scope,
            seed=self.seed,
        )


searching = gathered(
    Searching,
    [
        click.option("--step", type=float, default=1 / 8, show_default=True, help="Share of a width, or channels."),
        click.option("--method", default="default", show_default=True, help="Search method; see docs/search.md."),
        click.option("--evaluations", type=int, default=200, show_default=True, help="Structures to estimate."),
        click.option("--importance", default="l1", show_default=True, help="l1, l2, bn or random."),
        click.option("--calibration", type=int, default=4096, show_default=True, help="Images to recalibrate on."),
        FROZEN,
        SCOPE,
        click.option("--seed", type=int, default=0, show_default=True, help="Of hold-out, search and training."),
    ],
)


@dataclass(frozen=True)
class Training:
    """How to train."""

    recipe: str | None
    epochs: int | None
    lr: float | None
    batch_size: int | None

    def chosen(self, data: str, scratch: bool, seed: int) -> Recipe:
        return self._named(data, scratch).changed(self.epochs, self.batch_size, self.lr, seed=seed)

    def _named(self, data: str, scratch: bool) -> Recipe:
        if self.recipe is not None:
            return RECIPES[self.recipe]
        if data == "digits":
            return DIGITS if scratch else DIGITS_FINETUNE
        return RECIPES["base"] if scratch else FINETUNE


training = gathered(
    Training,
    [
        click.option("--recipe", type=click.Choice(list(RECIPES)), help="By default our own."),
        click.option("--epochs", type=int, help="Cut or stretch the recipe to so many."),
        click.option("--lr", type=float, help="First learning rate, instead of the recipe's."),
        click.option("--batch-size", type=int, help="Instead of the recipe's."),
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
