"""Mending: what a folder does with files that are not what its manifest lists, before the results of stages are used.

A small file is restored from the copy in the manifest. Any other is renamed to NAME.damaged and left out of the
manifest, so that the stage that writes it is carried out again. Nothing is deleted that could not be made again.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from aacp.disk.reading import read_json
from aacp.disk.writing import rename
from aacp.errors import UnreadableFile
from aacp.runs.files import ARTEFACT, EVALUATION, EXPORTED, LOGS, RECOVERY, RUN, TRAINING_REQUEST, remedy_of, stage_of
from aacp.runs.folder import RunFolder
from aacp.runs.listing import FIRST_FILES
from aacp.runs.manifest import MANIFEST, Manifest, read_manifest
from aacp.runs.verification import FileState, complete_lines, intact_lines, verified

DAMAGED = ".damaged"  # added to the name of a file that is set aside
# Files that are made again together with one that is lost.
DEPENDENTS = {RECOVERY: (ARTEFACT, EVALUATION)}
RESTORED = f"it is restored from the copy in {MANIFEST}"


def has_lost_manifest(folder: Path) -> bool:
    """Whether a folder without a manifest once had one: the versions that write manifests record threads, too."""
    for name in (RUN, TRAINING_REQUEST):
        try:
            known = read_json(folder / name)
        except UnreadableFile:
            continue
        if isinstance(known, Mapping) and known.get("threads"):
            return True
    return False


def is_foreign(folder: Path) -> bool:
    """Whether a manifest is that of another folder, so that nothing may be restored from it.

    More of its files are damaged than whole, and not only one. Or the request is not the one that it lists, and most
    other files are not either: a damaged request alone is restored.
    """
    states = verified(folder)
    counts = Counter(states.values())
    are_most_damaged = counts["damaged"] > max(1, counts["whole"])
    requests = {states[name] for name in (RUN, TRAINING_REQUEST) if name in states}
    is_other_request = bool(requests & {"damaged", "not listed"})
    others = [state == "whole" for name, state in states.items() if name not in (RUN, TRAINING_REQUEST, *LOGS)]
    return are_most_damaged or (is_other_request and others.count(False) > others.count(True))


def mend(folder: RunFolder) -> frozenset[str]:
    """Make a folder agree with its manifest; returns the names of the files that have to be made again.

    A folder of an older version, which has no manifest, gets one that lists its files as they are.
    """
    if not folder.path.is_dir():
        return frozenset()
    manifest = _manifest(folder)
    if manifest is None:
        return frozenset()
    lost = [
        name
        for name, state in verified(folder.path).items()
        if state != "whole" and not _restore(folder, manifest, name, state)
    ]
    exported = [name for name in manifest.entries if stage_of(name) == EXPORTED]
    for name in lost:
        together = exported if name in exported else DEPENDENTS.get(name, ())
        folder.remove(*(each for each in together if each not in lost))
    return frozenset(lost)


def set_aside(folder: RunFolder, name: str, reason: str) -> None:
    """Rename a file that cannot be used, so that it is made again, and say so."""
    kept = _move_away(folder, name)
    if kept:
        reason = f"{reason}; it is kept as {kept}"
    announce(folder.path, f"{name} {reason}. What follows: {remedy_of(name)}.")


def announce(place: Path, sentence: str) -> None:
    """Tell the user what was found in a folder; also a silent call says it, since a result may change."""
    sys.stderr.write(f"{place}: {sentence}\n")


def _manifest(folder: RunFolder) -> Manifest | None:
    """The manifest of a folder; one that lists all files as they are if there is none or it is damaged."""
    try:
        found = read_manifest(folder.path)
        reason = "is missing" if found is None and has_lost_manifest(folder.path) else ""
    except UnreadableFile:
        found = None
        reason = "is damaged"
    if found is not None and is_foreign(folder.path):
        found = None
        reason = "lists other files than those in the folder"
    if found is not None:
        return found
    if reason:
        _move_away(folder, MANIFEST)
        consequence = "They are taken as they are and listed again."
        announce(folder.path, f"{MANIFEST} {reason}, so the files cannot be verified. {consequence}")
    if not any((folder.path / name).is_file() for name in FIRST_FILES):
        return None
    folder.listing.begin()
    return read_manifest(folder.path)


def _restore(folder: RunFolder, manifest: Manifest, name: str, state: FileState) -> bool:
    """Restore a file, or set it aside; True if it is as good as it was."""
    if state == "not listed":
        if stage_of(name) == EXPORTED:  # an export that was interrupted before its record: it is repeated
            return True
        set_aside(folder, name, f"is not listed in {MANIFEST}")
        return False
    reason = "is missing" if state == "missing" else f"is damaged: its checksum is not the one in {MANIFEST}"
    entry = manifest.entries.get(name)
    copy = None if entry is None else entry.copy
    if copy is not None:
        _move_away(folder, name)
        folder.write_text(name, copy)
        announce(folder.path, f"{name} {reason}; {RESTORED}.")
        return True
    if name in LOGS:
        return _keep_intact_lines(folder, name, reason)
    set_aside(folder, name, reason)
    return False


def _move_away(folder: RunFolder, name: str) -> str:
    """Give a file a name that no stage reads, and return it; empty if there is no such file."""
    free = f"{name}{DAMAGED}"
    number = 1
    while os.path.lexists(folder.path / free):
        number += 1
        free = f"{name}{DAMAGED}-{number}"
    is_there = os.path.lexists(folder.path / name)
    if is_there:
        rename(folder.path / name, free)
    folder.listing.forget(name)
    return free if is_there else ""


def _keep_intact_lines(folder: RunFolder, name: str, reason: str) -> bool:
    """Keep the lines of a log that are intact; if all are, others may be lost, which whoever reads the log notices."""
    path = folder.path / name
    lines = intact_lines(path)
    if path.is_file() and len(lines) == len(complete_lines(path)):
        announce(folder.path, f"{name} {reason}. What follows: {remedy_of(name)}.")
        return False
    set_aside(folder, name, f"{reason}; {len(lines)} of its lines are intact")
    folder.write_bytes(name, b"".join(line + b"\n" for line in lines))
    return False
