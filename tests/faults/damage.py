"""Damage to files of finished and unfinished runs: the answer is a mended run with the right result, or a sentence."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from faults import plants
from faults.cases import Verdict
from faults.forker import Attempt, Ending, Forker
from faults.plants import Plant
from faults.subjects import MIMIC, PRUNE, TRAIN
from faults.trees import differences, results, snapshot

DAMAGES = (
    plants.MISSING, plants.raw(b""), plants.shortened(0.5), plants.shortened(0.95), plants.flipped(0.02),
    plants.flipped(0.4), plants.flipped(0.8), plants.flipped(0.995), plants.raw(b"\xff\xfe\x9f"), plants.text("{}"),
    plants.text("[]\n"), plants.NESTED, plants.FOLDER, plants.FIFO,
)  # fmt: skip
OTHER = "other"  # the folder of a run with another seed and another limit, whose files are swapped in
SWAPPED = Plant("file of another run", lambda place: None)
# The command that made each folder of the world, and that is given again after the damage.
COMMANDS = {
    "done": (*PRUNE, "--run", "done"),
    "half": (*PRUNE, "--run", "half"),
    "mimicked": (*MIMIC, "--run", "mimicked"),
    "trained": TRAIN,
}
SAME_RESULT = {"half": "done"}  # the folder that holds the undisturbed result of an unfinished one
NAMED = ("--model", "faults.subjects:net", "--data", "faults.subjects:data")  # what the command line names is trusted
STATES = {
    "done": "finished run", "half": "unfinished run", "mimicked": "run without training",
    "trained": "finished training",
}  # fmt: skip
# Fields of run.json with values that its run did not write.
FIELDS = (
    ("limits", []), ("limits", None), ("limits", [{"cost": "macs", "pruning_rate": 7.0}]), ("limits", [1]),
    ("pruning_step", "wide"), ("pruning_step", -1), ("pruning_step", 1e999), ("method", "nonsense"), ("method", 5),
    ("evaluations", -4), ("evaluations", 1e999), ("evaluations", "4"), ("seed", -1), ("seed", 0.5), ("seed", "x"),
    ("calibration_images", 0), ("scope", "outer"), ("tie", [["nothing"]]), ("frozen", "conv1"), ("holdout", -1),
    ("data_source", "nonsense"), ("model", "nonsense"), ("model", 5), ("weights_file", "nowhere"),
    ("metric_source", "no.module:f"), ("loss_source", "no.module:f"), ("deployment", {"runtime": "abacus"}),
    ("importance", "nonsense"), ("max_drop", -1.0), ("known_from", ["nowhere"]), ("versions", 1), ("threads", -1),
)  # fmt: skip
UNIMPORTANT = {".lock", "report.html"}


@dataclass(frozen=True)
class Damage:
    """Damage to one file of a run folder."""

    run: str
    file: str  # relative to the folder of the run
    plant: Plant

    @property
    def name(self) -> str:
        return f"{self.run}/{self.file}: {self.plant.name}"

    def act(self, folder: Path) -> None:
        place = folder / self.run / self.file
        if self.plant is SWAPPED:
            shutil.copyfile(_of_other_run(folder, self.run, self.file), place)
        else:
            self.plant(place)


def damages(world: Path) -> list[Damage]:
    """Every damage to every file of the runs in a world; of a run without training, to the files of its delivery."""
    found = []
    for run in COMMANDS:
        below = world / run / "trainings" if run == "mimicked" else world / run
        for place in sorted(below.rglob("*")):
            if not place.is_file() or place.name in UNIMPORTANT:
                continue
            file = str(place.relative_to(world / run))
            found += [Damage(run, file, plant) for plant in DAMAGES]
            if _of_other_run(world, run, file).is_file():
                found.append(Damage(run, file, SWAPPED))
    found += [Damage("done", "run.json", plants.edited(name, value=value)) for name, value in FIELDS]
    return found


def copy_world(world: Path, place: Path) -> None:
    """A copy of a world; files are not shared, since cases may write into them."""
    shutil.copytree(world, place, symlinks=True)


def readers(run: str) -> list[tuple[str, ...]]:
    """Commands that read a run."""
    evaluating = [] if run in ("half", "trained") else [("evaluate", run, *NAMED)]
    return [("report", run), *evaluating]


def _of_other_run(world: Path, run: str, file: str) -> Path:
    """The file of another run; if it has none of this name, of a finished run with another training."""
    other = world / OTHER / file
    return other if other.is_file() else world / ("done" if run == "mimicked" else "mimicked") / Path(file).name


def damaged_and_repeated(damage: Damage, world: Path, place: Path, forker: Forker) -> Verdict:
    """Damage a file in a copy of the world, give the command of the run again, and judge what becomes of it."""
    shutil.copytree(world, place, symlinks=True)
    damage.act(place)
    before = snapshot(place / damage.run)
    ending = forker.run(Attempt(str(place), command=COMMANDS[damage.run], seconds=180))
    wrong = answer(ending)
    if wrong.word:
        return wrong
    if ending.code == 0:
        right = results(world / SAME_RESULT.get(damage.run, damage.run))
        found = [change for change in differences(right, _without_report(place / damage.run)) if not _is_spare(change)]
        return (
            Verdict("silently wrong", f"{'; '.join(found[:4])}. {ending.err[-200:]}")
            if found
            else Verdict(message="mended")
        )
    changed = [change for change in differences(before, snapshot(place / damage.run)) if not _is_record(change)]
    if changed:
        return Verdict("files touched", f"{'; '.join(changed[:4])}. {ending.err.strip()[-300:]}")
    return Verdict(message="explained")


def _is_spare(change: str) -> bool:
    """Whether a change adds a damaged file under another name, or drops a checkpoint of a training that is finished."""
    return change.endswith(".damaged added") or bool(re.fullmatch(r"trainings/[^/]+/training/\S+ removed", change))


def _is_record(change: str) -> bool:
    """Whether a change only adds a file, or records in the request of a training that it failed."""
    return change.endswith((" added", "training.json changed", "manifest.json changed"))


def damaged_and_read(damage: Damage, command: tuple[str, ...], world: Path, place: Path, forker: Forker) -> Verdict:
    """Damage a file in a copy of the world and let a command read the run: no traceback, no hang."""
    shutil.copytree(world, place, symlinks=True)
    damage.act(place)
    return answer(forker.run(Attempt(str(place), command=command, seconds=180)))


def _without_report(folder: Path) -> dict[str, str]:
    (folder / "report.html").unlink(missing_ok=True)
    return results(folder)


def answer(ending: Ending) -> Verdict:
    """Whatever happened, it must be explained by a sentence."""
    if ending.timed_out:
        return Verdict("hang", "no answer")
    if ending.code is None:
        return Verdict("crash", ending.err[-300:])
    if "Traceback (most recent call last)" in ending.err:
        return Verdict("traceback", ending.err.strip().splitlines()[-1])
    if ending.code not in (0, 1, 2):
        return Verdict("internal error", ending.err.strip().splitlines()[-1][:300])
    last = ending.err.strip().splitlines()[-1] if ending.err.strip() else ""
    if ending.code and ". " not in last:
        return Verdict("unclear", f"exit code {ending.code}: {last[-300:]}")
    return Verdict()
