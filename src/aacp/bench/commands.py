"""`aacp bench`: the measurements behind what we claim about search, on the command line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from aacp.bench import FAMILIES, ITERATIONS


@click.group()
def bench() -> None:
    """Measure the search: the paper's figure 3, searchers against each other, slack and overhead."""


@bench.command()
@click.option("--seeds", default=50, show_default=True, help="Runs of each reading.")
@click.option("--iterations", default=ITERATIONS, show_default=True, help="At most, in each run.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for fig3.html, fig3.json, fig3.md.")
def fig3(seeds: int, iterations: int, out: Path | None) -> None:
    """Eq. 14 with IDE, DE and bee colonies: the curve of Fig. 3 as a table and a figure."""
    from aacp.bench import fig3 as figure

    curves = figure.measure(seeds, iterations)
    text = _page(f"aacp bench fig3 --seeds {seeds} --iterations {iterations}", seeds, figure.table(curves))
    click.echo(text)
    if out is not None:
        _keep(out, "fig3", text, figure.summary(curves))
        figure.draw(curves, out / "fig3.html")


@bench.command()
@click.option("--seeds", default=50, show_default=True, help="Problems of each family.")
@click.option("--family", "chosen", multiple=True, type=click.Choice(FAMILIES), help="Only this one; repeatable.")
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for search_FAMILY.json and .md.")
def search(seeds: int, chosen: tuple[str, ...], out: Path | None) -> None:
    """Searchers against each other, at equal evaluations, on problems whose best answer is known."""
    from aacp.bench import compare as comparing

    for family in chosen or FAMILIES:
        comparison = comparing.measure(family, seeds)
        text = _page(f"aacp bench search --seeds {seeds} --family {family}", seeds, comparing.table(comparison))
        click.echo(text)
        if out is not None:
            _keep(out, f"search_{family}", text, asdict(comparison))


@bench.command()
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for slack.json and slack.md.")
def slack(out: Path | None) -> None:
    """What rescaling leaves of a budget, and how long a proposal takes."""
    from aacp.bench import slack as slacking

    rows = slacking.slacks()
    text = _page("aacp bench slack", 1, f"{slacking.slack_table(rows)}\n\n{slacking.overhead_table()}")
    click.echo(text)
    if out is not None:
        _keep(out, "slack", text, [asdict(row) for row in rows])


def _page(command: str, seeds: int, body: str) -> str:
    from aacp.runs.provenance import Provenance

    return f"{Provenance.of(command)}seeds: 0 to {seeds - 1}\n\n{body}\n"


def _keep(folder: Path, name: str, text: str, raw: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    (folder / f"{name}.json").write_text(json.dumps(raw) + "\n")
