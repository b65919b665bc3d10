"""The check on a device that is not here: its folder beside the delivered network, and its result."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from aacp.cost.budget import Limit
from aacp.cost.kinds import LATENCY
from aacp.disk.folders import folders_in
from aacp.disk.reading import sha256_of
from aacp.errors import RunMismatch
from aacp.graph.examples import with_batch
from aacp.latency.check import Verdict
from aacp.latency.devices.check_folder import DeviceMeasurement, is_whole_check, read_check, write_check
from aacp.latency.devices.files import CHECK, MANIFEST
from aacp.latency.devices.results import RUN_AGAIN, read_results, results_file
from aacp.latency.table import LatencyTable
from aacp.pipeline.latency_stage import measured_result, seconds_of_table
from aacp.pipeline.plan import Plan
from aacp.pipeline.reporting import write_report_or_reason
from aacp.pipeline.reuse import usable_graph
from aacp.pipeline.task import PruningTask
from aacp.runs.chosen import ChosenStructure, DeviceCheck, LimitResult
from aacp.runs.exports import files_of
from aacp.runs.files import CHECK_FOLDER, DEVICE_CHECK, STRUCTURE, TABLE
from aacp.runs.folder import RunFolder
from aacp.runs.listing import FIRST_FILES
from aacp.runs.trainings import run_of
from aacp.user.values import path_text


def unchecked_limit(choice: ChosenStructure) -> LimitResult | None:
    """The limit on latency that the table of another device predicts to be met; None if nothing is to be checked."""
    return next((limit for limit in choice.limits if limit.cost == LATENCY and limit.measured is False), None)


def is_check_folder(place: Path) -> bool:
    """Whether a folder is that of a check; a run or a training may have the same name."""
    return place.name == CHECK_FOLDER and not any((place / name).exists() for name in FIRST_FILES)


# -- delivery ---------------------------------------------------------------------------------------------------------


def deliver_check(run: RunFolder, training: RunFolder, choice: ChosenStructure, task: PruningTask, plan: Plan) -> None:
    """Write the folder of a check beside the delivered files, if the latency has to be checked on another device.

    Args:
        run: the run folder, which holds the latency table.
        training: the folder of the training, which holds the files of both networks.
        choice: the structure that the search found.
        task: the network and its data.
        plan: its deployment names the files.
    """
    result = unchecked_limit(choice)
    folder = training.path / CHECK_FOLDER
    if result is None or (is_whole_check(folder) and _is_of_files(folder, training.path)):
        return
    own = run.path / TABLE
    table = LatencyTable.load(own if own.exists() or plan.latency_table is None else plan.latency_table)
    suffix = plan.deployment.resolved_runtime.suffix
    write_check(
        folder,
        files_of(training.path / f"original{suffix}"),
        files_of(training.path / f"pruned{suffix}"),
        model=table.model,
        structure=choice.structure,
        limit=Limit(LATENCY, pruning_rate=result.pruning_rate, at_most=result.at_most),
        conditions=table.conditions,
        batch=with_batch(task.example(), plan.deployment.batch),
    )
    known = training.read(DEVICE_CHECK, DeviceCheck.from_json)
    if known is not None and known.manifest != sha256_of(folder / MANIFEST):
        training.remove(DEVICE_CHECK)  # it is about another network


def _is_of_files(folder: Path, training: Path) -> bool:
    """Whether the networks of a check are those that the training delivers."""
    names = [file.name for file in folder.iterdir() if file.name.startswith(("original.", "pruned."))]
    return all((training / name).is_file() and sha256_of(training / name) == sha256_of(folder / name) for name in names)


# -- results ----------------------------------------------------------------------------------------------------------


def check_from_results(folder: str | os.PathLike[str], file: str | os.PathLike[str]) -> DeviceCheck:
    """Read what a device found about the network of a run, and record whether the limit on latency is met.

    The verdict is that of a check on this machine. It replaces an earlier one, and the report is written again. The
    latency table of the run is corrected by the measurement, so that another run can use it.

    Args:
        folder: a run folder, the folder of a sweep or of a training.
        file: the results.json that runner.py wrote, wherever it lies, or the folder that holds it.
    """
    results = results_file(path_text("file", file))
    place = _checked_training(Path(path_text("folder", folder)), results)
    measured = read_check(results, place / CHECK_FOLDER)
    run = RunFolder(run_of(place))
    with run.lock():
        choice = ChosenStructure.from_json(run.read_json(STRUCTURE))
        result = unchecked_limit(choice)
        if result is None or choice.structure != measured.checked.structure:
            raise RunMismatch(
                f"{place / CHECK_FOLDER} checks another structure than the one that {run.path} has chosen. Repeat the "
                "command of the run, which writes the folder again."
            )
        found = _record_of(measured, result, sha256_of(place / CHECK_FOLDER / MANIFEST))
        _correct_table(run, measured)
        RunFolder(place).write_json(DEVICE_CHECK, found.to_json())
        write_report_or_reason(run)
    return found


def _checked_training(folder: Path, file: Path) -> Path:
    """The folder of the training whose check the results are of."""
    results = read_results(file, CHECK)
    checks = [place for place in folders_in(folder) if is_check_folder(place) and (place / MANIFEST).is_file()]
    if not checks:
        raise RunMismatch(
            f"{folder} has no folder {CHECK_FOLDER}, since its latency was not searched with the table of another "
            "device. Give the folder of a run with such a table."
        )
    for place in checks:
        if results.manifest == sha256_of(place / MANIFEST):
            return place.parent
    raise RunMismatch(f"{file} is not of {checks[0]}: the networks or the limit were others. {RUN_AGAIN}")


def _record_of(measured: DeviceMeasurement, result: LimitResult, manifest: str) -> DeviceCheck:
    limit = measured.limit
    share = measured.checked.share_of(limit)
    shown = measured_result(result, limit, measured.checked)
    return DeviceCheck(
        manifest=manifest,
        counts=measured.checked.structure.counts,
        runtime=measured.conditions.runtime,
        version=measured.conditions.version,
        machine=measured.conditions.machine,
        turns=measured.turns,
        limit=replace(shown, is_undecided=measured.checked.verdict(limit) is Verdict.UNDECIDED),
        low=share.lower,
        high=share.upper,
    )


def _correct_table(run: RunFolder, measured: DeviceMeasurement) -> None:
    """Correct the latency table of a run by a measurement; an earlier one of the same structure is replaced."""
    graph = usable_graph(run)
    if graph is None or not (run.path / TABLE).exists():
        return
    table = LatencyTable.load(run.path / TABLE)
    structure = measured.checked.structure
    upper = seconds_of_table(measured.limit, measured.checked, table).upper
    corrected = table.corrected(graph, [structure], [upper])
    counts = corrected.corrections[-1][0]
    others = tuple(each for each in table.corrections if each[0] != counts)
    replace(corrected, corrections=(*others, corrected.corrections[-1])).save(run.path / TABLE)
