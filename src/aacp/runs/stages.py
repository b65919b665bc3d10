"""The stage of a run that writes each of its files."""

from __future__ import annotations

from pathlib import Path

from aacp.disk.folders import names_in
from aacp.runs.files import (
    ARTEFACT,
    CHECKPOINT,
    CHECKS,
    DEVICE_CHECK,
    EVALUATION,
    EXPORT,
    FINALISTS,
    GRAPH,
    HISTORY,
    LOG,
    RECOVERY,
    RUN,
    STATE,
    STEPS,
    STRUCTURE,
    TABLE,
    TRAINING_REQUEST,
    WEIGHTS,
)

SEARCH = "search"
EXPORTED = "export"
# The stage that writes each file. Files with other names are not listed: nothing is decided by them.
STAGES = {
    RUN: "request",
    TRAINING_REQUEST: "request",
    GRAPH: "trace",
    TABLE: "latency",
    STEPS: "latency",
    CHECKS: "latency",
    CHECKPOINT: SEARCH,
    HISTORY: SEARCH,
    STRUCTURE: SEARCH,
    FINALISTS: "finalists",
    LOG: "training",
    STATE: "training",
    WEIGHTS: "training",
    ARTEFACT: "delivery",
    EVALUATION: "evaluation",
    RECOVERY: "evaluation",
    EXPORT: EXPORTED,
    DEVICE_CHECK: "latency",
}
LOGS = (HISTORY, LOG, CHECKS)  # files that grow line by line


def stage_of(name: str) -> str | None:
    """The stage that writes a file of this name, or None if such files are not listed."""
    if name in STAGES:
        return STAGES[name]
    stem, _, suffix = name.partition(".")
    if suffix and stem in ("original", "pruned") and ".damaged" not in name:
        return EXPORTED
    return "training" if stem.startswith("weights-") and suffix == "safetensors" else None


def staged_files(folder: Path) -> list[str]:
    """The names of the files in a folder that stages write."""
    return [name for name in names_in(folder) if stage_of(name) is not None]
