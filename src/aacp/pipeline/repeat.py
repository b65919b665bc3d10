"""repeat: the same run with several seeds, for the mean and the spread of its results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aacp.errors import InvalidOption, RunMismatch, first_line
from aacp.pipeline.pruned import Pruned
from aacp.pipeline.reporting import write_report_or_reason
from aacp.pipeline.sweep import Sweep
from aacp.runs.chosen import ChosenStructure
from aacp.runs.exports import ExportRecord
from aacp.runs.files import EVALUATION, EXPORT, RUN
from aacp.runs.folder import RunFolder
from aacp.runs.repeats import Groups, Repetition, SeedRun, choice_metrics, evaluation_metrics, file_name
from aacp.runs.requests import Request
from aacp.runs.scores import Evaluation
from aacp.runs.trainings import require_name, trainings_in
from aacp.user.progress import report_progress
from aacp.user.values import finite_metric, function, instance, path_text, seed_number, shown

RunOfSeed = Callable[[int, Path], "Pruned | Sweep | Mapping[str, float]"]


def repeat(
    run: RunOfSeed,
    seeds: Sequence[int],
    folder: str | os.PathLike[str],
    *,
    name: str = "run",
) -> Repetition:
    """Call `run(seed, folder)` for every seed, and collect the mean and the standard deviation of the results.

    A seed whose call raises an exception is recorded as failed, and the others are run all the same. The same call
    again resumes what is not finished, as far as `run` resumes in its folder.

    Args:
        run: a function that carries out one run in the folder it is given and returns its result: what `aacp.prune` or
            `aacp.sweep` returns, or numbers by name.
        seeds: all different.
        folder: holds the folder of each seed (`seed-0`, ...), the results, and one report.
        name: distinguishes several repetitions in one folder: the results are written to repeat-NAME.json.
    """

    function("run", run, "(seed, folder)")
    path_text("folder", folder)
    instance("name", name, str, "Give the name of the repetition.")
    require_name(name)

    def groups_of_seed(seed: int, place: Path) -> Groups:
        return _groups(run(seed, place))

    return repeat_request(groups_of_seed, seeds, folder, name, {})[0]


def repeat_request(
    run: Callable[[int, Path], Groups],
    seeds: Sequence[int],
    folder: str | os.PathLike[str],
    name: str,
    request: dict[str, Any],
) -> tuple[Repetition, str]:
    """`repeat` for a function that returns metrics by group and carries out a request that can be recorded.

    The request is what is the same for all seeds; a folder with another request of this name is rejected.

    Returns:
        The repetition, and why there is no report of it, or an empty text.
    """
    seeds = _checked_seeds(seeds)
    place = RunFolder.of(folder)
    with place.lock():
        _check_request(place, name, request)
        runs: list[SeedRun] = []
        found = Repetition(name, (), request)
        for seed in seeds:
            report_progress(f"{place.path}: seed {seed}, {len(runs) + 1} of {len(seeds)}")
            runs.append(_one(run, seed, seed_folder(place.path, seed)))
            found = Repetition(name, tuple(runs), request)
            place.write_json(file_name(name), found.to_json())
        return found, write_report_or_reason(place) if found.finished else "No seed finished."


def seed_folder(folder: Path, seed: int) -> Path:
    """The folder of one seed."""
    return folder / f"seed-{seed}"


def _one(run: Callable[[int, Path], Groups], seed: int, folder: Path) -> SeedRun:
    try:
        return SeedRun(seed, folder.name, run(seed, folder))
    except (Exception, SystemExit) as error:  # the results of the other seeds are kept, whatever happened to this one
        return SeedRun(seed, folder.name, {}, first_line(error))


def _checked_seeds(seeds: Any) -> list[int]:
    if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Iterable):
        raise InvalidOption(f"The seeds are {shown(seeds)}, which is not a list. Give one, such as [0, 1, 2].")
    found = [seed_number(seed) for seed in seeds]
    if not found:
        raise InvalidOption("There are no seeds to run. Give one or more, such as 0,1,2.")
    repeated = sorted(seed for seed, times in Counter(found).items() if times > 1)
    if repeated:
        listed = ", ".join(map(str, repeated))
        raise InvalidOption(f"The seeds contain {listed} more than once. Give each seed once.")
    return found


def _check_request(place: RunFolder, name: str, request: dict[str, Any]) -> None:
    """Reject a folder that holds results of the same name for another request."""
    known = place.read(file_name(name), Repetition.from_json)
    if known is not None:
        # Options that only another version of aacp records are compared by the runs of the seeds.
        shared = [option for option in request if option in known.request]
        require_same_options(place.path, known.request, request, shared)


def require_same_options(folder: Path, before: dict[str, Any], request: dict[str, Any], names: Iterable[str]) -> None:
    """Reject a request that differs in one of the named options from the one that the folder holds."""
    differing = [
        f"{name.replace('_', ' ')}: {before.get(name)} then, {request.get(name)} now"
        for name in names
        if before.get(name) != request.get(name)
    ]
    if differing:
        raise RunMismatch(
            f"{folder} holds seeds of another request: {'; '.join(differing)}. "
            "Repeat the earlier request, or choose another folder."
        )


# -- the metrics of results -------------------------------------------------------------------------------------------


def _groups(result: Pruned | Sweep | Mapping[str, float]) -> Groups:
    """The metrics of a result of `prune` or `sweep`, or those that the user's function computed."""
    if isinstance(result, Pruned):
        return {"": evaluation_metrics(result.evaluation, result.exported, metric_of(result.folder))}
    if isinstance(result, Sweep):
        return sweep_groups(zip(result.folders, result.choices, result.evaluations, strict=True))
    if not isinstance(result, Mapping):
        raise InvalidOption(
            f"The run of a seed returned {shown(result)}. Return the result of aacp.prune or aacp.sweep, or numbers by "
            "name."
        )
    return {"": {str(name): finite_metric(str(name), value) for name, value in result.items()}}


def sweep_groups(runs: Iterable[tuple[RunFolder, ChosenStructure, Evaluation | None]]) -> Groups:
    """A group for each budget, named after its folder; `runs` has its folder, its structure and its evaluation."""
    groups = {}
    for folder, choice, evaluation in runs:
        metric = metric_of(folder)
        trained = {} if evaluation is None else evaluation_metrics(evaluation, export_of(folder, evaluation), metric)
        groups[folder.path.name] = {**choice_metrics(choice, metric), **trained}
    return groups


def metric_of(folder: RunFolder) -> str:
    """The name of the score of a run."""
    known = folder.read(RUN, Request.from_json)
    return "accuracy" if known is None else known.metric


def export_of(folder: RunFolder, evaluation: Evaluation) -> ExportRecord | None:
    """Sizes and timings of the exported networks of the training with this evaluation, if there are any."""
    for place in trainings_in(folder.path).values():
        training = RunFolder(place)
        if training.read_json(EVALUATION) == evaluation.to_json():
            return training.read(EXPORT, ExportRecord.from_json)
    return None
