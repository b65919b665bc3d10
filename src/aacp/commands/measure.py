"""aacp measure: time structures of a network on this machine, as a table for limits on latency."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from aacp.commands.gathering import reject_options
from aacp.commands.options import BATCH, FROZEN, INPUT, JSON, PRECISION, RUNTIME, SCOPE, STEP_HELP, THREADS
from aacp.commands.parameters import Number, step
from aacp.commands.running import file_name, resumable, show
from aacp.pipeline import defaults

if TYPE_CHECKING:
    from aacp.latency.table import LatencyTable

# What --from takes besides the file. The exported folder and the device decide everything else.
OF_RESULTS = {"results", "accept_noise", "out", "as_json"}
OF_TIMING = ("seconds", "accept_noise", "out")  # what --export-only does not take
LATER = "nothing is timed yet; runner.py takes --seconds, and measure --from takes --accept-noise and --out"


@click.command()
@click.argument("model", required=False)
@RUNTIME
@click.option("--device", default="cpu", show_default=True, help="Device of the runtime: cpu, or cuda in torch.")
@BATCH
@THREADS
@PRECISION
@INPUT
@click.option("--step", type=step, default=defaults.PRUNING_STEP, show_default=True, help=STEP_HELP)
@FROZEN
@SCOPE
@click.option(
    "--structures",
    type=click.IntRange(8, 100_000),
    default=defaults.STRUCTURES,
    show_default=True,
    help="Structures to time.",
)
@click.option(
    "--seconds",
    type=Number(1e-3, 3600),
    default=defaults.SECONDS_PER_STRUCTURE,
    show_default=True,
    help="Time for each structure; give more on a busy machine.",
)
@click.option(
    "--workers",
    metavar="1|ray://HOST:PORT",
    show_default="this process",
    help="Time the networks in one worker of the Ray cluster at an address, or, with 1, of that of RAY_ADDRESS. The "
    "table is of the worker's machine.",
)
@click.option("--accept-noise", is_flag=True, help="Make the table even if it is too noisy to decide anything.")
@click.option(
    "--export-only",
    metavar="DIR",
    type=click.Path(),
    help="New folder for the networks, to be timed on another device.",
)
@click.option(
    "--from", "results", metavar="FILE", type=click.Path(), help="Make the table of the results.json in such a folder."
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    show_default="latency/MODEL-RUNTIME-DEVICE.json, with -int8 in int8",
    help="File of the table.",
)
@JSON
def measure(
    model: str | None,
    runtime: str,
    device: str,
    batch: int,
    threads: int,
    precision: str,
    shapes: tuple[tuple[int, ...], ...],
    step: float | Literal["auto"],
    frozen: tuple[str, ...],
    scope: str,
    structures: int,
    seconds: float,
    workers: str | None,
    accept_noise: bool,
    export_only: str | None,
    results: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Time structures of MODEL piece by piece, and save a table that predicts the seconds of any other.

    MODEL is a name that aacp --help explains. aacp prune takes the table with --table. Other work on the machine
    disturbs the measurement: if the table cannot decide anything, the noisiest structures are measured again, and then
    the table is rejected. The same command again resumes an interrupted or rejected measurement, or export.

    For a device that is not here, --export-only writes the networks and a program that times them there, and --from
    makes the table of what it found; MODEL is then left out.
    """
    from aacp.latency.deployment import Deployment
    from aacp.latency.devices.results import results_file, table_from_results
    from aacp.latency.job import MeasurementJob

    if (model is None) == (results is None) or (export_only is not None and results is not None):
        raise click.UsageError("Give either MODEL, with --export-only or without it, or --from FILE.")
    if workers is not None and (results is not None or export_only is not None):
        raise click.UsageError("--workers times networks, but --export-only and --from do not. Leave one of them out.")
    if results is not None:
        names = {option.name or "" for option in click.get_current_context().command.params} - OF_RESULTS
        reject_options(sorted(names), "the results say what was timed and how", "Give MODEL instead of --from")
        out = out or str(results_file(results).parent / "latency.json")
        table = table_from_results(results, accept_noise=accept_noise)
        table.save(out)
        _show(table, out, as_json)
        return
    assert model is not None
    if export_only is not None:
        reject_options(OF_TIMING, LATER, "Leave out --export-only")
    where = Deployment(runtime, device, batch, threads, precision)
    place = f"{runtime}-{device}-{precision}" if where.is_quantized else f"{runtime}-{device}"
    out = out or f"latency/{file_name(f'{model}-{place}')}.json"
    job = MeasurementJob(model, out, where, shapes, step, frozen, scope, structures, seconds, accept_noise, workers)
    if export_only is not None:
        with resumable(export_only):
            manifest = job.export(export_only)
        show(_after_export(manifest.parent), {"manifest": str(manifest)}, as_json)
        return
    with resumable(f"{out}.log"):
        table = job.run()
    _show(table, out, as_json)


def _after_export(folder: Path) -> str:
    """What was exported, and what to do with it."""
    from aacp.latency.devices.files import RESULTS

    return (
        f"networks and runner.py: {folder}\n"
        f"Copy {folder} to the device, run its runner.py there, copy results.json back into {folder}, then "
        f"aacp measure --from {folder / RESULTS}"
    )


def _show(table: LatencyTable, out: str, as_json: bool) -> None:
    """Print a table that was saved to a file."""
    found = {
        "table": out,
        "seconds": table.reference,
        "error": asdict(table.error),
        "setting": asdict(table.conditions),
        "warning": table.warning,
        "problem": table.problem,
    }
    lines = [str(table), *([table.warning] if table.warning else []), f"table: {out}"]
    show("\n".join(lines), found, as_json)
