"""Folders as values: the content of every file, and the results of a run without what the clock decides."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

# Fields of JSON files that hold times, or where and when a run was made.
OF_THE_CLOCK = {"started", "seconds", "images_per_second", "limit", "command", "hardware", "versions", "low_seconds",
                "high_seconds", "low_speedup", "high_speedup", "median_speedup", "crc32", "repeats"}  # fmt: skip
# Files that hold times all over, or nothing that a result depends on; of these only the presence is compared.
PRESENCE_ONLY = {"report.html"}
IGNORED = {".lock"}
# The state of a search before its last batch is not a result, and a resumed search makes other batches.
CHECKPOINTS = {"search.json"}
LARGE = 1 << 26  # bytes of a file that is not read but recognised by its time


def snapshot(folder: Path) -> dict[str, str]:
    """The kind and content of everything below a folder, by path."""
    found = {}
    for place in sorted(folder.rglob("*")):
        if place.name in IGNORED:
            continue
        kind = place.lstat().st_mode
        if stat.S_ISLNK(kind):
            content = f"link to {os.readlink(place)}"
        elif stat.S_ISREG(kind):
            content = _digest(place)
        else:
            content = oct(stat.S_IFMT(kind))
        found[str(place.relative_to(folder))] = content
    return found


def _digest(place: Path) -> str:
    found = place.lstat()
    if found.st_size > LARGE:
        return f"{found.st_size} bytes of {found.st_mtime_ns}"
    return hashlib.sha256(place.read_bytes()).hexdigest()


def differences(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What was changed, removed or added, by path."""
    changed = [f"{name} changed" for name in before if name in after and after[name] != before[name]]
    removed = [f"{name} removed" for name in before if name not in after]
    return [*changed, *removed, *(f"{name} added" for name in after if name not in before)]


def results(folder: Path) -> dict[str, str]:
    """What two runs of one request must have in common: every file, without the fields that the clock decides."""
    found = {}
    for place in sorted(folder.rglob("*")):
        if not place.is_file() or place.name in IGNORED | CHECKPOINTS:
            continue
        name = str(place.relative_to(folder))
        found[name] = "present" if place.name in PRESENCE_ONLY else _content(place)
    return found


def _content(place: Path) -> str:
    try:
        return _read(place)
    except (ValueError, RecursionError):
        return f"damaged: {_digest(place)}"


def _read(place: Path) -> str:
    if place.name == "manifest.json":
        return "present"  # it holds checksums of files with times; `aacp check` compares them with the files
    if place.suffix in (".json", ".steps"):
        return json.dumps(_timeless(json.loads(place.read_text())), sort_keys=True)
    if place.suffix in (".jsonl", ".log"):
        lines = [json.loads(line) for line in place.read_text().splitlines()]
        return json.dumps([_timeless(line) for line in lines], sort_keys=True)
    return hashlib.sha256(place.read_bytes()).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _timeless(each) for name, each in value.items() if name not in OF_THE_CLOCK}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


def leftovers(folder: Path) -> list[str]:
    """Temporary files: names with a point in front, or the ending of a part."""
    names = (place for place in folder.rglob("*") if place.is_file() and place.name not in IGNORED)
    return [str(place.relative_to(folder)) for place in names if re.match(r"\.|.*\.part$", place.name)]
