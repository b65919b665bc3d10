"""aacp check: which files of a run folder are whole, and whether a device found that its network meets the limit."""

from __future__ import annotations

import json

import click


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--from",
    "results",
    metavar="FILE",
    type=click.Path(),
    help="Read the results.json of a check on another device, and record whether the limit on latency is met.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def check(context: click.Context, folder: str, results: str | None, as_json: bool) -> None:
    """Compare the files of RUN with its manifest, and its results with its graph and limits. Nothing is changed.

    RUN is the folder of a run, a sweep, a repetition or a training. The exit code is 0 if every file is whole, else 1.

    With --from, the limit on latency of a run for another device is decided by what the program in its folder check
    found there. The exit code is 0 if the limit is met, and 1 if it is missed or the measurement was too noisy to tell.
    """
    from aacp.pipeline.checking import check_folder
    from aacp.pipeline.device_check import check_from_results

    if results is not None:
        measured = check_from_results(folder, results)
        click.echo(json.dumps(measured.to_json()) if as_json else str(measured))
        context.exit(0 if measured.is_met else 1)
    found = check_folder(folder)
    click.echo(json.dumps(found.to_json()) if as_json else str(found))
    if not found.is_whole:
        context.exit(1)
