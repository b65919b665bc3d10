"""The trainings of a run folder: where each is kept, and which network a folder delivers.

A run folder holds one search and any number of trainings of the structure that it found, each in `trainings/NAME`.
Older versions kept one training in the run folder itself: there it is found under its default name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aacp.disk.writing import remove_folder
from aacp.errors import InvalidOption, RunMismatch
from aacp.runs.exports import ORIGINAL_ONNX, PRUNED_ONNX
from aacp.runs.files import ARTEFACT, EVALUATION, EXPORT, RUN, STATE, TRAINING, TRAINING_REQUEST, TRAININGS
from aacp.runs.folder import RunFolder
from aacp.runs.requests import TrainingRequest

FINETUNED = "finetuned"
SCRATCH = "scratch"
UNTRAINED = "untrained"
MIMICKED = "mimicked"
NAME_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
# The files of a training that an older version kept in the run folder, apart from the folder of its checkpoints.
RESULTS = (ARTEFACT, EVALUATION, EXPORT, PRUNED_ONNX, ORIGINAL_ONNX)


def default_name(is_trained: bool, from_scratch: bool, is_mimicked: bool = False) -> str:
    """The name of a training that is given none."""
    if not is_trained:
        return MIMICKED if is_mimicked else UNTRAINED
    return SCRATCH if from_scratch else FINETUNED


def require_name(name: str) -> None:
    """Reject a name that cannot be the name of a folder."""
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidOption(
            f"{name!r} cannot be the name of a training, since its folder has that name. Use letters, digits, ., _ "
            "and -, and begin with a letter, a digit or _."
        )


def trainings_in(run: Path) -> dict[str, Path]:
    """The folder of every training of a run by name, the earliest first."""
    found = {path.parent.name: path.parent for path in (run / TRAININGS).glob(f"*/{TRAINING_REQUEST}")}
    if _holds_old_training(run):
        request = read_training(run)
        assert request is not None
        found = {default_name(request.recipe is not None, request.from_scratch): run, **found}
    return dict(sorted(found.items(), key=lambda item: _started(item[1])))


def training_folder(run: Path, name: str) -> Path:
    """The folder of a training, which need not exist yet."""
    require_name(name)
    return trainings_in(run).get(name, run / TRAININGS / name)


def read_training(folder: Path) -> TrainingRequest | None:
    """The request of the training in a folder, or None if there is none."""
    name = RUN if _holds_old_training(folder) else TRAINING_REQUEST
    return RunFolder(folder).read(name, TrainingRequest.from_json) if folder.is_dir() else None


def remove_training(folder: Path) -> None:
    """Remove a training with its results; of an older run folder, only what belongs to the training."""
    if not _holds_old_training(folder):
        remove_folder(folder)
        return
    remove_folder(folder / TRAINING)
    RunFolder(folder).remove(*RESULTS)


def is_begun(place: Path) -> bool:
    """Whether a training left an epoch or a network."""
    return (place / TRAINING / STATE).exists() or (place / ARTEFACT).exists()


def run_of(folder: Path) -> Path:
    """The run folder that a training's folder belongs to; a run folder is returned unchanged."""
    return folder.parent.parent if folder.parent.name == TRAININGS else folder


def delivered_in(folder: Path) -> Path:
    """The file of the pruned network that a folder holds: that of a training, or of a run with one training."""
    if (folder / ARTEFACT).exists():
        return folder / ARTEFACT
    found = {name: place for name, place in trainings_in(folder).items() if (place / ARTEFACT).exists()}
    if len(found) > 1:
        raise InvalidOption(
            f"{folder} holds the networks of {len(found)} trainings: {', '.join(found)}. Give the folder of one, such "
            f"as {next(iter(found.values()))}."
        )
    return next(iter(found.values()), folder) / ARTEFACT


def _holds_old_training(folder: Path) -> bool:
    """Whether the folder is a run folder in which an older version trained."""
    if not ((folder / ARTEFACT).exists() or (folder / TRAINING).is_dir()) or (folder / TRAINING_REQUEST).exists():
        return False
    try:
        known: Any = RunFolder(folder).read_json(RUN)
    except RunMismatch:  # a damaged file: whoever needs its content reports it
        return False
    return isinstance(known, Mapping) and "recipe" in known


def _started(folder: Path) -> str:
    try:
        request = read_training(folder)
    except RunMismatch:
        return ""
    return "" if request is None else request.started
