"""Checking: which files of a run folder are whole, and what the next call does about the others. Nothing is changed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aacp.artefact.header import Artefact
from aacp.channels.graph import ChannelGraph
from aacp.cost.budget import Budget
from aacp.disk.folders import folders_in
from aacp.disk.reading import read_bytes, read_json
from aacp.disk.records import Record
from aacp.errors import RunMismatch, UnreadableFile
from aacp.latency.devices.check_folder import is_whole_check
from aacp.pipeline.device_check import is_check_folder, unchecked_limit
from aacp.pipeline.reuse import require_evaluated, require_valid
from aacp.runs.chosen import ChosenStructure, DeviceCheck
from aacp.runs.exports import ExportRecord
from aacp.runs.files import (
    ARTEFACT,
    CHECK_FOLDER,
    DEVICE_CHECK,
    EVALUATION,
    EXPORT,
    EXPORTED,
    GRAPH,
    LOGS,
    RUN,
    STRUCTURE,
    remedy_of,
    stage_of,
    staged_files,
)
from aacp.runs.folder import UNREADABLE, RunFolder
from aacp.runs.manifest import MANIFEST, Manifest, read_manifest
from aacp.runs.mending import RESTORED, has_lost_manifest, is_foreign
from aacp.runs.requests import Request
from aacp.runs.scores import Evaluation
from aacp.runs.trainings import trainings_in
from aacp.runs.unfinished import Unfinished, unfinished_lines, unfinished_steps
from aacp.runs.verification import intact_lines, verified
from aacp.user.progress import counting

AS_THEY_ARE = "the files of its folder cannot be verified, and are taken as they are"
OLDER_VERSION = "not verified, since a folder of an older version has no manifest"


@dataclass(frozen=True)
class CheckedFile(Record):
    """The state of one file: whole, damaged, missing, foreign (of another network or request) or not listed."""

    file: str  # the path inside the checked folder
    state: str
    stage: str
    remedy: str = ""  # what the next call does about it, if it is not whole

    @property
    def is_whole(self) -> bool:
        return self.state == "whole" or self.remedy in ("", OLDER_VERSION)

    def __str__(self) -> str:
        return f"{self.file}: {self.state}{f'; {self.remedy}' if self.remedy else ''}"


@dataclass(frozen=True)
class FolderCheck(Record):
    """What `aacp check` found in a folder."""

    folder: str
    files: tuple[CheckedFile, ...]
    limits: tuple[str, ...] = ()  # of each limit on latency that another device has not found to be met, what is known
    unfinished: tuple[Unfinished, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether every file can be used."""
        return all(file.is_whole for file in self.files)

    def to_json(self) -> dict[str, Any]:
        files = [file.to_json() for file in self.files]
        steps = [step.to_json() for step in self.unfinished]
        limits = list(self.limits)
        return {"folder": self.folder, "whole": self.is_whole, "files": files, "limits": limits, "unfinished": steps}

    def __str__(self) -> str:
        counts = Counter(file.state for file in self.files)
        summary = ", ".join(f"{count} {state}" for state, count in counts.items())
        advice = "" if self.is_whole else " The same command as before does what is listed here."
        lines = [*map(str, self.files), f"{self.folder}: {summary}.{advice}", *self.limits]
        return "\n".join([*lines, *unfinished_lines(self.unfinished)])


def check_folder(folder: str | os.PathLike[str]) -> FolderCheck:
    """The state of all files in a run folder, the folder of a sweep, a repetition or a training."""
    top = Path(folder)
    places = [place for place in folders_in(top) if not is_check_folder(place)]
    runs = [place for place in places if (place / RUN).is_file() and (place / GRAPH).is_file()]
    found: dict[str, CheckedFile] = {}
    limits: list[str] = []
    with counting(len(places) + len(runs), "checks of folders") as begin:
        for place in places:
            begin(f"the files of {place}")
            found |= {each.file: each for each in _listed(place, top)}
        for place in runs:
            begin(f"the results of {place}")
            choice = _compare_contents(place, top, found)
            limits += [] if choice is None else _open_limits(place, top, choice)
    if not found:
        raise RunMismatch(f"{top} does not hold a run. Give the folder of one.")
    unfinished = [step for place in places for step in unfinished_steps(place, top)]
    return FolderCheck(str(top), tuple(found.values()), tuple(limits), tuple(unfinished))


# -- checksums --------------------------------------------------------------------------------------------------------


def _listed(place: Path, top: Path) -> Iterator[CheckedFile]:
    """The files of one folder, compared with its manifest."""
    inside = place.relative_to(top)
    try:
        manifest = read_manifest(place)
        states = verified(place)
        is_damaged = manifest is not None and is_foreign(place)
    except UnreadableFile:
        is_damaged = True
    if is_damaged:
        yield CheckedFile(str(inside / MANIFEST), "damaged", "manifest", AS_THEY_ARE)
        return
    if manifest is None:
        yield from _without_manifest(place, inside)
        return
    for name, state in sorted(states.items()):
        remedy = "" if state == "whole" else _remedy(manifest, name, state)
        yield CheckedFile(str(inside / name), state, stage_of(name) or "", remedy)


def _remedy(manifest: Manifest, name: str, state: str) -> str:
    if state == "not listed":
        return "" if stage_of(name) == EXPORTED else remedy_of(name)
    entry = manifest.entries.get(name)
    return RESTORED if entry is not None and entry.copy is not None else remedy_of(name)


def _without_manifest(place: Path, inside: Path) -> Iterator[CheckedFile]:
    """The files of a folder that has no manifest: an older version wrote it, or the manifest is lost."""
    names = staged_files(place)
    if names and has_lost_manifest(place):
        yield CheckedFile(str(inside / MANIFEST), "missing", "manifest", AS_THEY_ARE)
    for name in names:
        stage = stage_of(name) or ""
        if _is_readable(place / name):
            yield CheckedFile(str(inside / name), "not listed", stage, OLDER_VERSION)
        else:
            yield CheckedFile(str(inside / name), "damaged", stage, remedy_of(name))


def _is_readable(path: Path) -> bool:
    """Whether a file has the form that belongs to its name; no checksum shows whether its content was changed."""
    if not path.is_file():
        return False
    if path.name in LOGS:
        return len(intact_lines(path)) == read_bytes(path).count(b"\n")
    if path.suffix != ".json":
        return True
    try:
        read_json(path)
    except UnreadableFile:
        return False
    return True


# -- contents ---------------------------------------------------------------------------------------------------------


def _compare_contents(place: Path, top: Path, found: dict[str, CheckedFile]) -> ChosenStructure | None:
    """Compare the choice of a search with its graph and limits, and the results of trainings with the choice.

    Returns:
        The choice, or None if there is none that can be used.
    """

    def report(file: Path, state: str) -> None:
        name = str(file.relative_to(top))
        if name in found and found[name].is_whole:
            found[name] = CheckedFile(name, state, stage_of(file.name) or "", remedy_of(file.name))

    try:
        graph = ChannelGraph.from_json(RunFolder(place).read_json(GRAPH) or {})
        request = Request.from_json(RunFolder(place).read_json(RUN))
    except UNREADABLE:  # their own files are reported, and nothing can be compared with them
        return None
    try:
        choice = RunFolder(place).read(STRUCTURE, ChosenStructure.from_json)
        if choice is None:
            return None
        require_valid(choice, graph, Budget(*request.limits))
    except UNREADABLE:
        report(place / STRUCTURE, "damaged")
        return None
    for training in trainings_in(place).values():
        for name in _foreign(RunFolder(training), graph, choice):
            report(training / name, "foreign")
        if _misses_export(RunFolder(training)):
            report(training / EXPORT, "damaged")
        check = training / CHECK_FOLDER
        if check.is_dir():
            state = "whole" if is_whole_check(check) else "damaged"
            remedy = "" if state == "whole" else "the folder is written again from the exported networks"
            name = str(check.relative_to(top))
            found[name] = CheckedFile(name, state, "latency", remedy)
    return choice


def _open_limits(place: Path, top: Path, choice: ChosenStructure) -> Iterator[str]:
    """Say which trainings are not known to meet the limit on latency of another device."""
    limit = unchecked_limit(choice)
    for training in trainings_in(place).values() if limit is not None else ():
        try:
            known = RunFolder(training).read(DEVICE_CHECK, DeviceCheck.from_json)
        except UNREADABLE:  # the file is reported
            known = None
        name = training.relative_to(top)
        if known is None or known.counts != choice.counts:
            yield f"{name}: {limit}."
        elif not known.is_met:
            yield f"{name}: {known}. {known.next_step}"


def _foreign(training: RunFolder, graph: ChannelGraph, choice: ChosenStructure) -> Iterator[str]:
    """The results of a training that are not those of the chosen structure."""
    artefact = training.path / ARTEFACT
    try:
        if artefact.is_file() and Artefact.read(artefact).structure != choice.structure:
            yield ARTEFACT
    except UNREADABLE:
        yield ARTEFACT
    try:
        known = training.read(EVALUATION, Evaluation.from_json)
        if known is not None:
            require_evaluated(known, choice.structure, graph)
    except UNREADABLE:
        yield EVALUATION


def _misses_export(training: RunFolder) -> bool:
    """Whether a training has the record of an export, but not all of its files."""
    try:
        known = training.read(EXPORT, ExportRecord.from_json)
        return known is not None and bool(known.missing_in(training.path))
    except UNREADABLE:
        return True
