"""Verification: whether the files of a folder are what its manifest lists."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from aacp.disk.parsing import parse_json
from aacp.disk.reading import open_file, read_bytes, read_json, sha256_of
from aacp.errors import UnreadableFile
from aacp.runs.files import COPIED, HISTORY, LOGS, RUN, SEARCH, staged_files
from aacp.runs.manifest import Entry, Manifest, digest, read_manifest, usable_manifest
from aacp.runs.requests import ADDED_FIELDS, ESTIMATE_FIELDS
from aacp.runs.sealing import SEALED, is_intact

FileState = Literal["whole", "damaged", "missing", "not listed"]


def verified(folder: Path) -> dict[str, FileState]:
    """The state of every listed file, and of every file that should be listed, by name."""
    manifest = read_manifest(folder) or Manifest()
    found: dict[str, FileState] = {name: state_of(folder / name, entry) for name, entry in manifest.entries.items()}
    for name in staged_files(folder):
        if name not in found:
            found[name] = _unlisted_state(folder / name)
    return found


def state_of(path: Path, entry: Entry) -> FileState:
    """Whether a file has the content that is listed, or the content that was to be replaced."""
    if not path.exists():
        return "missing"
    if not path.is_file():
        return "damaged"
    if path.name in LOGS:
        return "whole" if _is_whole_log(path, entry) else "damaged"
    return "whole" if sha256_of(path) in (entry.sha256, entry.earlier) else "damaged"


def _unlisted_state(path: Path) -> FileState:
    """A log is listed some lines after its first; until then, the seals of its lines verify it."""
    if path.name not in LOGS:
        return "not listed"
    return state_of(path, Entry(digest(b""), 0, SEARCH))


def is_whole(path: Path) -> bool:
    """Whether a file is what the manifest beside it lists; True if there is no manifest, or it does not list it."""
    manifest = usable_manifest(path.parent)
    entry = None if manifest is None else manifest.entries.get(path.name)
    return entry is None or state_of(path, entry) == "whole"


def copy_of(path: Path) -> str | None:
    """The copy of a file that the manifest beside it holds, if the file itself is not what is listed."""
    if path.name not in COPIED:
        return None
    manifest = usable_manifest(path.parent)
    entry = None if manifest is None else manifest.entries.get(path.name)
    if entry is None or entry.copy is None or state_of(path, entry) == "whole":
        return None
    return entry.copy


def intact_lines(path: Path) -> list[bytes]:
    """The complete lines of a log that were not changed since they were written."""
    if not path.is_file():
        return []
    key = seal_key(path.parent, path.name)
    return [line for line in complete_lines(path) if is_intact(line, key)]


def complete_lines(path: Path) -> list[bytes]:
    """The lines of a log without their ends; the last is left out if it is incomplete."""
    content = read_bytes(path)
    return content[: content.rfind(b"\n") + 1].splitlines()


def seal_key(folder: Path, name: str) -> int:
    """What the lines of a log are sealed with: in a history, a number for the settings that scores depend on.

    So the history of another run is noticed. Searches inside a run folder have the key of the run.
    """
    places = (folder, *folder.parents[:3]) if name == HISTORY else ()
    for place in places:
        copy = copy_of(place / RUN)
        try:
            request = read_json(place / RUN) if copy is None else parse_json(copy.encode())
        except (UnreadableFile, ValueError):
            continue
        if isinstance(request, Mapping):
            sealed = [request.get(each) for each in ESTIMATE_FIELDS if each in request or each not in ADDED_FIELDS]
            return zlib.crc32(json.dumps(sealed).encode())
    return 0


def _is_whole_log(path: Path, entry: Entry) -> bool:
    """Whether a log begins with what is listed, and every line after that is sealed and intact.

    An incomplete last line does not count. Lines without a seal are those of an older version, which are listed.
    """
    if path.stat().st_size < entry.bytes or sha256_of(path, entry.bytes) != entry.sha256:
        return False
    with open_file(path) as file:
        file.seek(entry.bytes)
        key = seal_key(path.parent, path.name)
        return all(SEALED.fullmatch(line) and is_intact(line, key) for line in file if line.endswith(b"\n"))
