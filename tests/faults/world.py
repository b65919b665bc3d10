"""The folder in which cases are tried: finished and unfinished runs, weights, a table, data; made once and copied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from faults.forker import Attempt, Ending, Forker
from faults.subjects import EXPORT, MEASURE, MIMIC, PRUNE, PRUNE_FOR_BOARD, SEARCH, TRAIN

COMMANDS = (
    ["search", *SEARCH, "--run", "searched"],
    [*MIMIC, "--run", "mimicked"],
    [*(word if word != "0.4" else "0.6" for word in PRUNE), "--seed", "1", "--run", "other"],
    [*MEASURE, "--out", "table.json"],
    TRAIN,
)  # fmt: skip
# A device that is not here: `networks` is the folder of its table, `check` that of the check of the run `boarded`.
ON_DEVICE = (
    Attempt("", command=(*EXPORT, "networks")),
    Attempt("", code="s.time_on_device('networks')"),
    Attempt("", command=("measure", "--from", "networks", "--out", "board.json")),
    Attempt("", command=(*PRUNE_FOR_BOARD, "--table", "board.json", "--run", "boarded")),
    Attempt(
        "",
        code="import shutil; shutil.copytree('boarded/trainings/untrained/check', 'check'); s.time_on_device('check')",
    ),
)
FILES = """
import numpy as np
from safetensors.torch import save_file
from PIL import Image
inputs, labels = s.tensors(16, 5)
save_file({"inputs": inputs, "labels": labels}, "data.safetensors")
np.save("data.npy", inputs.numpy())
for part in ("train", "val"):
    for label in ("cat", "dog"):
        for number in range(4):
            place = Path("images") / part / label / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((8, 8, 3), 20 * number, dtype=np.uint8)).save(place)
"""


def build_world(folder: Path, forker: Forker) -> None:
    """Fill a folder with everything that the cases of the catalogue damage."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _require(forker, Attempt(str(folder), command=(*PRUNE, "--run", "done"), below=str(folder)))
    for command in COMMANDS:
        _require(forker, Attempt(str(folder), command=tuple(command)))
    for attempt in (Attempt("", code=FILES), *ON_DEVICE):
        _require(forker, replace(attempt, folder=str(folder)))
    # Killed while it appended the third line of its history.
    appended = [number for number, event in enumerate(done.events, 1) if event == "fsync done/history.jsonl"]
    half = Attempt(str(folder), command=(*PRUNE, "--run", "half"), fault="kill", at=appended[2], below=str(folder))
    assert forker.run(half).code is None
    for page in folder.rglob("report.html"):
        page.unlink()  # nearly 5 MB each; every report is written anew


def _require(forker: Forker, attempt: Attempt) -> Ending:
    ending = forker.run(attempt)
    if ending.code != 0:
        raise AssertionError(f"{attempt.command or attempt.code}: {ending.code}\n{ending.out}\n{ending.err}")
    return ending
