"""aacp measure: time structures of a network on this machine, as a table for limits on latency."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Literal

import click

from aacp.commands.options import (
    BATCH,
    FROZEN,
    INPUT,
    JSON,
    PRECISION,
    RUNTIME,
    SCOPE,
    STEP_HELP,
    THREADS,
    file_name,
    resumable,
)
from aacp.commands.parameters import Number, Step
from aacp.pipeline import defaults


@click.command()
@click.argument("model")
@RUNTIME
@click.option("--device", default="cpu", show_default=True, help="Device of the runtime: cpu, or cuda in torch.")
@BATCH
@THREADS
@PRECISION
@INPUT
@click.option("--step", type=Step(), default=defaults.PRUNING_STEP, show_default=True, help=STEP_HELP)
@FROZEN
@SCOPE
@click.option(
    "--structures", type=click.IntRange(8, 100_000), default=48, show_default=True, help="Structures to time."
)
@click.option(
    "--seconds",
    type=Number(1e-3, 3600),
    default=1.0,
    show_default=True,
    help="Time for each structure; give more on a busy machine.",
)
@click.option("--accept-noise", is_flag=True, help="Make the table even if it is too noisy to decide anything.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    show_default="latency/MODEL-RUNTIME-DEVICE.json, with -int8 in int8",
    help="File of the table.",
)
@JSON
def measure(
    model: str,
    runtime: str,
    device: str,
    batch: int,
    threads: int,
    precision: str,
    shape: tuple[int, ...] | None,
    step: float | Literal["auto"],
    frozen: tuple[str, ...],
    scope: str,
    structures: int,
    seconds: float,
    accept_noise: bool,
    out: str | None,
    as_json: bool,
) -> None:
    """Time structures of MODEL piece by piece, and save a table that predicts the seconds of any other.

    MODEL is a name that aacp --help explains. aacp prune takes the table with --table. Other work on the machine
    disturbs the measurement: if the table cannot decide anything, the noisiest structures are measured again, and then
    the table is rejected. The same command again resumes an interrupted or rejected measurement.
    """
    from aacp.latency.deployment import Deployment
    from aacp.latency.job import MeasurementJob

    where = Deployment(runtime, device, batch, threads, precision)
    place = f"{runtime}-{device}-{precision}" if where.is_quantized else f"{runtime}-{device}"
    out = out or f"latency/{file_name(f'{model}-{place}')}.json"
    job = MeasurementJob(model, out, where, shape, step, frozen, scope, structures, seconds, accept_noise, verbose=True)
    with resumable(f"{out}.log"):
        table = job.run()
    found = {
        "table": out,
        "seconds": table.reference,
        "error": asdict(table.error),
        "setting": asdict(table.conditions),
        "warning": table.warning,
        "problem": table.problem,
    }
    lines = [str(table), *([table.warning] if table.warning else []), f"table: {out}"]
    click.echo(json.dumps(found) if as_json else "\n".join(lines))
