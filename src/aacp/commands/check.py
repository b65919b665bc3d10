"""aacp check: which files of a run folder are whole, and whether a device found that its network meets the limit."""

from __future__ import annotations

import click

from aacp.commands.options import JSON
from aacp.commands.running import show


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(exists=True, file_okay=False))
@click.option(
    "--from",
    "results",
    metavar="FILE",
    type=click.Path(),
    help="Read the results.json of a check on another device, and record whether the limit on latency is met.",
)
@JSON
@click.pass_context
def check(context: click.Context, folder: str, results: str | None, as_json: bool) -> None:
    """Compare the files of RUN with its manifest, and its results with its graph and limits. Nothing is changed.

    RUN is the folder of a run, a sweep, a repetition or a training. The exit code is 0 if every file is whole, else 1.
    Steps that are not finished, with the command that continues them, and a limit on latency that another device has
    not found to be met are printed too.

    With --from, the limit on latency of a run for another device is decided by what the program in its folder check
    found there. The exit code is 0 if the limit is met, and 1 if it is missed or the measurement was too noisy to tell.
    """
    from aacp.pipeline.checking import check_folder
    from aacp.pipeline.device_check import check_from_results

    if results is not None:
        measured = check_from_results(folder, results)
        lines = [str(measured), *([measured.next_step] if measured.next_step else [])]
        show("\n".join(lines), measured.to_json(), as_json)
        context.exit(0 if measured.is_met else 1)
    found = check_folder(folder)
    show(found, found.to_json(), as_json)
    if not found.is_whole:
        context.exit(1)
