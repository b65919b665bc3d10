"""Verification: whether the files of a folder are what its manifest lists.

A manifest lists how a log begins, but not the lines that were appended since. Each of these is sealed: it ends with a
checksum of itself, so that a changed line is noticed.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from aacp.disk.parsing import parse_json
from aacp.disk.reading import RESTORE, open_file, read_bytes, read_json, sha256_of
from aacp.errors import UnreadableFile
from aacp.runs.files import COPIED, HISTORY, LOGS, RUN, SEARCH, staged_files
from aacp.runs.manifest import Entry, Manifest, digest, read_manifest, usable_manifest
from aacp.runs.requests import ADDED_FIELDS, ESTIMATE_FIELDS

SEAL = "crc32"  # the field of a line that holds its checksum
SEALED = re.compile(rb'(\{.*), "crc32": "([0-9a-f]{8})"\}\n?')

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
    entry = _entry_of(path)
    return entry is None or state_of(path, entry) == "whole"


def read_restored(path: Path, remedy: str = RESTORE) -> Any:
    """The content of a JSON file or, if it is not what the manifest beside it lists, of its copy in the manifest."""
    entry = _entry_of(path) if path.name in COPIED else None
    if entry is None or entry.copy is None or state_of(path, entry) == "whole":
        return read_json(path, remedy)
    return parse_json(entry.copy.encode())


def _entry_of(path: Path) -> Entry | None:
    """What the manifest beside a file lists about it."""
    manifest = usable_manifest(path.parent)
    return None if manifest is None else manifest.entries.get(path.name)


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


# -- sealed lines -----------------------------------------------------------------------------------------------------


def sealed(line: bytes, key: int = 0) -> bytes:
    """A line with the checksum of its content as the last field; only objects with fields can be sealed.

    Args:
        line: the line without its end.
        key: a number that lines of other runs are not sealed with.
    """
    if not line.startswith(b"{") or line == b"{}":
        return line
    return line[:-1] + b', "%s": "%08x"}' % (SEAL.encode(), zlib.crc32(line, key))


def opened(line: bytes, key: int = 0) -> Any:
    """The value of a line without its checksum; ValueError if it was changed, or sealed with another key."""
    value = parse_json(line)
    if isinstance(value, dict) and value.pop(SEAL, None) is not None:
        found = SEALED.fullmatch(line)
        if found is None or zlib.crc32(found[1] + b"}", key) != int(found[2], 16):
            raise ValueError("its checksum is not the one that it was written with")
    return value


def is_intact(line: bytes, key: int = 0) -> bool:
    """Whether a line is JSON and, if it is sealed, has the content that it was sealed with."""
    try:
        opened(line, key)
    except ValueError:
        return False
    return True


def seal_key(folder: Path, name: str) -> int:
    """What the lines of a log are sealed with: in a history, a number for the settings that scores depend on.

    So the history of another run is noticed. Searches inside a run folder have the key of the run.
    """
    places = (folder, *folder.parents[:3]) if name == HISTORY else ()
    for place in places:
        try:
            request = read_restored(place / RUN)
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
