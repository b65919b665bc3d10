"""The folder in which cases are tried: finished and unfinished runs, weights, a table, data; made once and copied."""

from __future__ import annotations

import shutil
from pathlib import Path

from faults.forker import Attempt, Forker
from faults.subjects import MEASURE, MIMIC, PRUNE, SEARCH, TRAIN

COMMANDS = (
    [*PRUNE, "--run", "done"],
    ["search", *SEARCH, "--run", "searched"],
    [*MIMIC, "--run", "mimicked"],
    [*(word if word != "0.4" else "0.6" for word in PRUNE), "--seed", "1", "--run", "other"],
    [*MEASURE, "--out", "table.json"],
    TRAIN,
)  # fmt: skip
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
    for command in COMMANDS:
        _require(forker, Attempt(str(folder), command=tuple(command)))
    _require(forker, Attempt(str(folder), code=FILES))
    # Killed while it appended to the history.
    killed = Attempt(
        str(folder), command=(*PRUNE, "--run", "half"), fault="kill", at=_half_time(folder, forker), below=str(folder)
    )
    assert forker.run(killed).code is None
    for page in folder.rglob("report.html"):
        page.unlink()  # nearly 5 MB each; every report is written anew


def _half_time(folder: Path, forker: Forker) -> int:
    """The number of the call that appends the third line of a history."""
    counted = forker.run(Attempt(str(folder), command=(*PRUNE, "--run", "counted"), below=str(folder)))
    shutil.rmtree(folder / "counted")
    places = [
        number for number, event in enumerate(counted.events, 1) if event.startswith("fsync counted/history.jsonl")
    ]
    return places[2]


def _require(forker: Forker, attempt: Attempt) -> None:
    ending = forker.run(attempt)
    if ending.code != 0:
        raise AssertionError(f"{attempt.command or attempt.code}: {ending.code}\n{ending.out}\n{ending.err}")
