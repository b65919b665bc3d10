"""Which steps of a run are not finished, and the command that continues each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aacp.disk.records import Record
from aacp.runs.files import EVALUATION, EXPORT, FINALISTS, FRONT, GRAPH, HISTORY, LOG, RUN, STRUCTURE, TRAINING, WEIGHTS
from aacp.runs.folder import UNREADABLE, RunFolder
from aacp.runs.manifest import usable_manifest
from aacp.runs.requests import Request
from aacp.runs.trainings import read_training, trainings_in
from aacp.user.values import counted


@dataclass(frozen=True)
class Unfinished(Record):
    """A step of a run that is not finished."""

    step: str
    command: str  # the command that began it; empty if it is not recorded


def unfinished_lines(steps: Sequence[Unfinished]) -> list[str]:
    """Steps for people, a line for each command."""
    lines = []
    for command in dict.fromkeys(each.command for each in steps):
        listed = ", ".join(each.step for each in steps if each.command == command)
        how = f"To continue: {command}" if command else "The same command as before continues."
        lines.append(f"Not finished: {listed}. {how}")
    return lines


def unfinished_steps(place: Path, top: Path) -> Iterator[Unfinished]:
    """The steps in one folder that are not finished; files that cannot be read say nothing.

    Args:
        place: the folder of a run, a sweep or a training of an unpruned network; any other has no steps.
        top: the folder that names are relative to.
    """
    try:
        known = RunFolder(place).read_json(RUN)
        if known is None:
            yield from _of_sweep(place, top)
        elif isinstance(known, dict) and "limits" in known:
            yield from _of_run(place, top, Request.from_json(known))
        elif not _is_inside_run(place) and not _was_written(place, WEIGHTS):
            yield Unfinished(f"the training{_named(place, top)}{_epochs(place, known['recipe'])}", "")
    except UNREADABLE:  # their own files are reported
        return


def _is_inside_run(place: Path) -> bool:
    """Whether a training belongs to a run, whose folder is at most three above: the run names its own trainings."""
    return any((above / RUN).is_file() for above in place.parents[:3])


def _of_sweep(place: Path, top: Path) -> Iterator[Unfinished]:
    """A sweep that has not written its front."""
    runs = sorted(place.glob(f"*/{RUN}"))
    if runs and (place / GRAPH).exists() and not (place / FRONT).exists():
        request = Request.from_json(RunFolder(runs[0].parent).read_json(RUN))
        yield Unfinished(f"the sweep{_named(place, top)}", request.command)


def _of_run(place: Path, top: Path, request: Request) -> Iterator[Unfinished]:
    """The search of a run, and its trainings."""
    if not _was_written(place, STRUCTURE):
        yield Unfinished(_search(place, top, request), request.command)
    for training in trainings_in(place).values():
        known = read_training(training)
        assert known is not None
        if not _was_written(training, EVALUATION):
            failure = f", which failed ({known.failure.rstrip('.')})" if known.failure else ""
            progress = failure or _epochs(training / TRAINING, known.recipe)
            what = "the delivery" if known.recipe is None else "the training"
            yield Unfinished(f"{what}{_named(training, top)}{progress}", known.command)
        elif known.export and not _was_written(training, EXPORT):
            yield Unfinished(f"the export{_named(training, top)}, which failed or was stopped", known.command)


def _search(place: Path, top: Path, request: Request) -> str:
    """A search that has no structure yet, and how far it is."""
    if _was_written(place, FINALISTS):
        return f"the comparison of finalists{_named(place, top)}"
    scored = len(RunFolder(place).read_log(HISTORY))
    progress = f" ({scored} of {counted(request.evaluations, 'evaluation')})" if request.max_drop is None else ""
    return f"the search{_named(place, top)}{progress}"


def _was_written(place: Path, name: str) -> bool:
    """Whether a step has written a file, which may be lost since: that is reported as damage."""
    manifest = usable_manifest(place)
    return (place / name).exists() or (manifest is not None and name in manifest.entries)


def _epochs(folder: Path, recipe: dict[str, Any] | None) -> str:
    """How far a training is; the folder holds its log."""
    if recipe is None:
        return ""
    return f" ({len(RunFolder(folder).read_log(LOG))} of {counted(recipe['epochs'], 'epoch')})"


def _named(place: Path, top: Path) -> str:
    return "" if place == top else f" of {place.relative_to(top)}"
