"""`aacp bench`: the benchmarks of the search on the command line."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from aacp.bench import FAMILIES, ITERATIONS
from aacp.disk.writing import replace_file

PROCESSES = click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Runs at once, in a process each."
)


@click.group()
def bench() -> None:
    """Benchmark the search: figure 3 of the paper, comparisons of methods, slack and overhead."""


@bench.command()
@click.option(
    "--seeds", type=click.IntRange(min=1), default=50, show_default=True, help="Runs of each reading of the paper."
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    default=ITERATIONS,
    show_default=True,
    help="Iterations of each run at most.",
)
@PROCESSES
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for fig3.html, fig3.json, fig3.md.")
def fig3(seeds: int, iterations: int, processes: int, out: Path | None) -> None:
    """Repeat figure 3 of the paper: equation 14 solved by IDE, DE and bee colonies, as a table and a figure."""
    from aacp.bench import fig3 as figure

    curves = figure.measure(seeds, iterations, processes)
    text = _page(
        f"aacp bench fig3 --seeds {seeds} --iterations {iterations} --processes {processes}",
        seeds,
        figure.table(curves),
    )
    click.echo(text)
    if out is not None:
        _write(out, "fig3", text, figure.summary(curves))
        figure.draw(curves, out / "fig3.html")


@bench.command()
@click.option("--seeds", type=click.IntRange(min=1), default=50, show_default=True, help="Problems of each family.")
@click.option("--family", "chosen", multiple=True, type=click.Choice(FAMILIES), help="Only this family. Repeatable.")
@PROCESSES
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for search_FAMILY.json and .md.")
def search(seeds: int, chosen: tuple[str, ...], processes: int, out: Path | None) -> None:
    """Compare search methods, at equal evaluations, on problems whose best structure is known."""
    from aacp.bench import compare as comparing

    for family in chosen or FAMILIES:
        comparison = comparing.measure(family, seeds, processes=processes)
        text = _page(
            f"aacp bench search --seeds {seeds} --family {family} --processes {processes}",
            seeds,
            comparing.table(comparison),
        )
        click.echo(text)
        if out is not None:
            _write(out, f"search_{family}", text, asdict(comparison))


@bench.command()
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Folder for slack.json and slack.md.")
def slack(out: Path | None) -> None:
    """Measure how much of a budget rescaling leaves unused, and the time per proposal."""
    from aacp.bench import slack as measurement

    rows = measurement.slacks()
    text = _page("aacp bench slack", 1, f"{measurement.slack_table(rows)}\n\n{measurement.overhead_table()}")
    click.echo(text)
    if out is not None:
        _write(out, "slack", text, [asdict(row) for row in rows])


def _page(command: str, seeds: int, body: str) -> str:
    from aacp.runs.provenance import Provenance

    return f"{Provenance.of(command)}seeds: 0 to {seeds - 1}\n\n{body}\n"


def _write(folder: Path, name: str, text: str, raw: object) -> None:
    replace_file(folder / f"{name}.md", text.encode())
    replace_file(folder / f"{name}.json", f"{json.dumps(raw)}\n".encode())
