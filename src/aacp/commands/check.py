"""aacp check: which files of a run folder are whole, and what is done again about the others."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def check(context: click.Context, folder: str, as_json: bool) -> None:
    """Compare the files of RUN with its manifest, and its results with its graph and limits. Nothing is changed.

    RUN is the folder of a run, a sweep, a repetition or a training. The exit code is 0 if every file is whole, else 1.
    """
    from aacp.pipeline.checking import check_folder

    found = check_folder(folder)
    click.echo(json.dumps(found.to_json()) if as_json else str(found))
    if not found.is_whole:
        context.exit(1)
