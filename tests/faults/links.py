"""Links that somebody planted in a run folder: no file of the user is written through them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from faults.cases import Verdict
from faults.damage import COMMANDS, answer, copy_world
from faults.forker import Attempt, Forker

PIDS = 3_000  # temporary names may hold the number of a process: links are planted for this many of the next numbers
VICTIM = "victim.txt"
TEXT = "the user's own text\n"
TRAINING = "trainings/finetuned"
# Names in a folder that a run has not begun to use yet.
FUTURE = (
    "run.json", "graph.json", "search.json", "history.jsonl", "structure.json", "manifest.json", ".lock", "report.html",
    "trainings", f"{TRAINING}/training.json", f"{TRAINING}/pruned.safetensors", f"{TRAINING}/evaluation.json", TRAINING,
    f"{TRAINING}/manifest.json", f"{TRAINING}/training", f"{TRAINING}/training/log.jsonl", f"{TRAINING}/training/.lock",
    f"{TRAINING}/training/training.safetensors", f"{TRAINING}/training/weights.safetensors",
    f"{TRAINING}/training/run.json",
)  # fmt: skip


def planted(world: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """The run, the name of the link, and the command that runs then."""
    for run, command in COMMANDS.items():
        for place in sorted((world / run).rglob("*")):
            if place.is_file():
                yield run, str(place.relative_to(world / run)), command
        yield run, "report.html", ("report", run)
    for name in FUTURE:
        yield "new", name, (*COMMANDS["done"][:-1], "new")


def linked_and_repeated(
    run: str, file: str, command: tuple[str, ...], world: Path, place: Path, forker: Forker
) -> Verdict:
    """Plant links to a file of the user in place of a file of a run and of its temporary names.

    Args:
        run: the folder of the run.
        file: the name of the link in it.
        command: what is run then.
        world: the template.
        place: a new folder.
        forker: makes the processes.
    """
    copy_world(world, place)
    victim = place / VICTIM
    victim.write_text(TEXT)
    link = place / run / file
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    for number in range(os.getpid(), os.getpid() + PIDS):
        (link.parent / f".{link.name}.{number}").symlink_to(victim)
    ending = forker.run(Attempt(str(place), command=command, seconds=180))
    if victim.read_text() != TEXT:
        return Verdict("written through a link", f"{file}: {ending.err[-200:]}")
    return answer(ending)
