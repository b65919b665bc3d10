"""The command line: every body parses, calls the library once, and prints."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from aacp import __version__
from aacp.bench.commands import bench
from aacp.errors import AACPError


class Shape(click.ParamType[tuple[int, ...]]):
    """Sizes joined by x: 1x3x224x224."""

    name = "shape"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        try:
            sizes = tuple(int(size) for size in str(value).lower().split("x"))
        except ValueError:
            self.fail(f"{value!r} is not a shape. Write sizes joined by x, such as 1x3x224x224.", param, ctx)
        if min(sizes) < 1:
            self.fail(f"{value!r} has a size below 1. Write sizes such as 1x3x224x224.", param, ctx)
        return sizes


class Commands(click.Group):
    """A group whose commands report our errors in one line and exit with 1."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AACPError as error:
            click.echo(f"{type(error).__name__}: {error}", err=True)
            sys.exit(1)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aacp")
def main() -> None:
    """Automatic channel pruning of convolutional networks.

    MODEL is vgg16, resnet20, resnet56, resnet110 (for CIFAR-10), digits_resnet, torchvision:NAME, timm:NAME, or
    package.module:function for a function of your own that returns a network.
    """


@main.command()
@click.argument("model")
@click.option("--input", "shape", type=Shape(), help="Shape of the example, such as 1x3x224x224.")
@click.option("--frozen", multiple=True, metavar="PATTERN", help="Layers to leave alone, such as 'head.*'. Repeatable.")
@click.option(
    "--scope", type=click.Choice(["all", "inner"]), default="all", help="inner: leave residual streams alone."
)
@click.option("--form", type=click.Choice(["module", "exported"]), default="module", help="What a cut network will be.")
@click.option("--json", "as_json", is_flag=True, help="Print the graph and its costs for a machine to read.")
def trace(
    model: str, shape: tuple[int, ...] | None, frozen: tuple[str, ...], scope: str, form: str, as_json: bool
) -> None:
    """Show the channel groups of MODEL: widths, what is frozen and why, MACs and parameters."""
    from aacp.cost.analytic import activation_bytes, macs, params
    from aacp.graph.tracing import trace as trace_network
    from aacp.zoo.models import build_model, example_input

    network = build_model(model)
    graph = trace_network(network, example_input(network, shape), frozen=frozen, scope=scope, form=form)
    if as_json:
        costs = {cost.name: cost.full for cost in (macs(graph), params(graph), activation_bytes(graph))}
        click.echo(json.dumps({"costs": costs, "graph": graph.to_json()}))
    else:
        click.echo(str(graph))


main.add_command(bench)

if __name__ == "__main__":
    main()
