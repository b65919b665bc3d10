"""The files and folders of a run folder: their names, who writes them, and what follows if one is lost.

docs/formats.md says what each holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aacp.disk.folders import names_in

RUN = "run.json"
GRAPH = "graph.json"
STRUCTURE = "structure.json"
FINALISTS = "finalists.json"  # the finalists of a search, and their scores after short trainings
FRONT = "front.json"  # the best structures of a sweep, in its folder
EVALUATION = "evaluation.json"
RECOVERY = "recovery.json"
EXPORT = "export.json"
ARTEFACT = "pruned.safetensors"  # the pruned network
TRAININGS = "trainings"  # the folder inside the run folder that holds a folder for each training
TRAINING_REQUEST = "training.json"  # the request of a training, inside its folder
TRAINING = "training"  # the log and the checkpoints of a training, inside its folder
LOG = "log.jsonl"  # the log of a training, inside that folder
STATE = "training.safetensors"  # the state of a training between two epochs, inside that folder
WEIGHTS = "weights.safetensors"  # the trained weights, inside that folder
HISTORY = "history.jsonl"  # every evaluation of a search
CONFIRMED = "confirmed"  # the folder of the structures of a search on few images that were scored on all
CORRECTED = "corrected"  # beginning of the names of folders of searches with a corrected latency table
PROBES = "probes"  # the folder of all probes of max_drop, one folder for each share that is tried
CHECKPOINT = "search.json"  # the state of a search
TABLE = "latency.json"  # the latency table that a search uses
STEPS = "steps.json"  # the pruning steps that were found by timing
CHECKS = "checks.jsonl"  # the candidates that were measured end to end
CHECK_FOLDER = "check"  # both networks and the program that times them on another device, inside a training's folder
DEVICE_CHECK = "device.json"  # what that program found

SEARCH = "search"
EXPORTED = "export"
LOGS = (HISTORY, LOG, CHECKS)  # files that grow line by line


@dataclass(frozen=True)
class StageFile:
    """A file that a stage writes."""

    stage: str
    remedy: str  # what the next call does if the file is not what the manifest lists and there is no copy of it
    is_copied: bool = False  # a small file that no stage can make again with certainty: the manifest holds a copy


# Files with other names are not listed: nothing is decided by them.
STAGE_FILES = {
    RUN: StageFile("request", "it cannot be made again; put it back from a copy", is_copied=True),
    TRAINING_REQUEST: StageFile("request", "it is written again with the request of the next training", is_copied=True),
    GRAPH: StageFile("trace", "the network is traced again"),
    TABLE: StageFile("latency", "the latency table is made again"),
    STEPS: StageFile("latency", "the pruning steps are found again", is_copied=True),
    CHECKS: StageFile("latency", "the measurements that are lost are repeated"),
    CHECKPOINT: StageFile(SEARCH, "the search is repeated with the recorded scores"),
    HISTORY: StageFile(SEARCH, "the evaluations that are lost are repeated"),
    STRUCTURE: StageFile(SEARCH, "the search is repeated with the recorded scores", is_copied=True),
    FINALISTS: StageFile("finalists", "the finalists are chosen and trained again", is_copied=True),
    LOG: StageFile("training", "the lines that are lost stay lost", is_copied=True),
    STATE: StageFile("training", f"the training is repeated, unless {ARTEFACT} is whole"),
    WEIGHTS: StageFile("training", "the weights are written again from the state of the training"),
    ARTEFACT: StageFile("delivery", "the network is written again from the trained weights"),
    EVALUATION: StageFile("evaluation", "the network is evaluated again"),
    RECOVERY: StageFile("evaluation", "the network is recovered and evaluated again"),
    EXPORT: StageFile(EXPORTED, "both networks are exported again"),
    DEVICE_CHECK: StageFile("latency", "the results of the device have to be read again", is_copied=True),
}
COPIED = tuple(name for name, file in STAGE_FILES.items() if file.is_copied)


def stage_of(name: str) -> str | None:
    """The stage that writes a file of this name, or None if such files are not listed."""
    if name in STAGE_FILES:
        return STAGE_FILES[name].stage
    stem, _, suffix = name.partition(".")
    if suffix and stem in ("original", "pruned") and ".damaged" not in name:
        return EXPORTED
    return "training" if stem.startswith("weights-") and suffix == "safetensors" else None


def staged_files(folder: Path) -> list[str]:
    """The names of the files in a folder that stages write."""
    return [name for name in names_in(folder) if stage_of(name) is not None]


def remedy_of(name: str) -> str:
    """What the next call does if a file without a copy is lost."""
    known = STAGE_FILES.get(EXPORT if stage_of(name) == EXPORTED else name)
    return "the training that wrote it has to be repeated in another folder" if known is None else known.remedy
