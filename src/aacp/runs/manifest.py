"""Manifest: the checksums of the files of a run folder, by which damaged, missing and exchanged files are noticed.

A file is listed before it is replaced, together with the checksum of the content that it replaces: a crash between
the two leaves a file that is still listed. Of a log, the manifest lists how it begins, since a log only grows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from aacp.disk.parsing import parse_json
from aacp.disk.reading import MAX_TEXT, read_bytes
from aacp.disk.records import Record
from aacp.errors import DamagedFile, DamagedRun, MissingFile, RunMismatch, UnreadableFile

MANIFEST = "manifest.json"
FORMAT = 1


@dataclass(frozen=True)
class Entry(Record):
    """What the manifest lists about one file."""

    sha256: str
    bytes: int  # the length of the file; of a log, the length of the part that the checksum covers
    stage: str
    earlier: str = ""  # the checksum of the content before, which a crash right before the replacement leaves
    copy: str | None = None  # the content of a small file that could not be made again


@dataclass(frozen=True)
class Manifest:
    """manifest.json: the entries of all listed files of one folder, by name.

    Args:
        entries: what is listed about each file.
        counts: in the folder of a training, the structure that is trained; None before the training.
    """

    entries: Mapping[str, Entry] = field(default_factory=dict)
    counts: tuple[int, ...] | None = None

    def text(self) -> str:
        """The content of the file; its last field is a checksum of the others."""
        files = {name: _entry_json(entry) for name, entry in sorted(self.entries.items())}
        counts = None if self.counts is None else list(self.counts)
        content = {"format": FORMAT, "counts": counts, "files": files}
        return json.dumps({**content, "check": digest(json.dumps(content).encode())}) + "\n"

    @classmethod
    def parsed(cls, text: bytes, path: Path) -> Manifest:
        """The manifest of a file's content; DamagedRun if the content was changed."""
        try:
            content = parse_json(text)
            check = content.pop("check")
            if check != digest(json.dumps(content).encode()):
                raise ValueError("its checksum differs")
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']}, not {FORMAT}")
            entries = {name: Entry.from_json(entry) for name, entry in content["files"].items()}
            counts = content["counts"]
            return cls(entries, None if counts is None else tuple(counts))
        except (ValueError, LookupError, TypeError, AttributeError, RunMismatch) as error:
            raise DamagedRun(
                f"{path} is damaged: {error}. The same command as before lists the files of the folder again."
            ) from None

    def with_entries(self, entries: Mapping[str, Entry]) -> Manifest:
        return replace(self, entries={**self.entries, **entries})

    def without(self, names: Iterable[str]) -> Manifest:
        left = {name: entry for name, entry in self.entries.items() if name not in set(names)}
        return replace(self, entries=left)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, or None if it has none; DamagedRun if it is damaged."""
    path = folder / MANIFEST
    try:
        return Manifest.parsed(read_bytes(path, limit=MAX_TEXT), path)
    except MissingFile:
        return None
    except DamagedFile as error:
        raise DamagedRun(str(error)) from None


def usable_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, or None if it has none that can be used."""
    try:
        return read_manifest(folder)
    except UnreadableFile:
        return None


def digest(content: bytes) -> str:
    """The checksum of a content."""
    return hashlib.sha256(content).hexdigest()


def _entry_json(entry: Entry) -> dict[str, Any]:
    """An entry without the fields that are empty."""
    return {name: value for name, value in entry.to_json().items() if value not in ("", None)}
