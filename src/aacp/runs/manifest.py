"""Manifest: the checksums of the files of a run folder, by which damaged, missing and exchanged files are noticed.

A file is listed before it is replaced, together with the checksum of the content that it replaces: a crash between
the two leaves a file that is still listed. Of a log, the manifest lists how it begins, since a log only grows.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from aacp.disk.folders import names_in
from aacp.disk.parsing import parse_json
from aacp.disk.reading import CHUNK, MAX_TEXT, open_file, read_bytes, read_json
from aacp.disk.writing import replace_file
from aacp.errors import DamagedFile, DamagedRun, MissingFile, RunMismatch, UnreadableFile
from aacp.runs.files import (
    ARTEFACT,
    CHECKPOINT,
    CHECKS,
    DEVICE_CHECK,
    EVALUATION,
    EXPORT,
    FINALISTS,
    GRAPH,
    HISTORY,
    LOG,
    RECOVERY,
    RUN,
    STATE,
    STEPS,
    STRUCTURE,
    TABLE,
    TRAINING_REQUEST,
    WEIGHTS,
)
from aacp.runs.requests import ESTIMATE_FIELDS
from aacp.runs.sealing import SEALED, is_intact, sealed
from aacp.runs.serialisation import Record

MANIFEST = "manifest.json"
FORMAT = 1
SEARCH = "search"
EXPORTED = "export"
# The stage that writes each file. Files with other names are not listed: nothing is decided by them.
STAGES = {
    RUN: "request",
    TRAINING_REQUEST: "request",
    GRAPH: "trace",
    TABLE: "latency",
    STEPS: "latency",
    CHECKS: "latency",
    CHECKPOINT: SEARCH,
    HISTORY: SEARCH,
    STRUCTURE: SEARCH,
    FINALISTS: "finalists",
    LOG: "training",
    STATE: "training",
    WEIGHTS: "training",
    ARTEFACT: "delivery",
    EVALUATION: "evaluation",
    RECOVERY: "evaluation",
    EXPORT: EXPORTED,
    DEVICE_CHECK: "latency",
}
LOGS = (HISTORY, LOG, CHECKS)  # files that grow line by line
# A folder has a manifest from the first of these files on.
FIRST_FILES = (RUN, TRAINING_REQUEST, GRAPH, CHECKPOINT)
# Small files that no stage can make again with certainty: the manifest holds a copy of each.
COPIED = (RUN, TRAINING_REQUEST, STRUCTURE, FINALISTS, STEPS, LOG, DEVICE_CHECK)
MAX_COPY = 1 << 20  # bytes of a copy; a larger file has none

FileState = Literal["whole", "damaged", "missing", "not listed"]


def stage_of(name: str) -> str | None:
    """The stage that writes a file of this name, or None if such files are not listed."""
    if name in STAGES:
        return STAGES[name]
    stem, _, suffix = name.partition(".")
    if suffix and stem in ("original", "pruned") and ".damaged" not in name:
        return EXPORTED
    return "training" if stem.startswith("weights-") and suffix == "safetensors" else None


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
        return json.dumps({**content, "check": _digest(json.dumps(content).encode())}) + "\n"

    @classmethod
    def parsed(cls, text: bytes, path: Path) -> Manifest:
        """The manifest of a file's content; DamagedRun if the content was changed."""
        try:
            content = parse_json(text)
            check = content.pop("check")
            if check != _digest(json.dumps(content).encode()):
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


# -- verification -----------------------------------------------------------------------------------------------------


def verified(folder: Path) -> dict[str, FileState]:
    """The state of every listed file, and of every file that should be listed, by name."""
    manifest = read_manifest(folder) or Manifest()
    found: dict[str, FileState] = {name: state_of(folder / name, entry) for name, entry in manifest.entries.items()}
    for name in staged_files(folder):
        if name not in found:
            found[name] = _unlisted_state(folder / name)
    return found


def staged_files(folder: Path) -> list[str]:
    """The names of the files in a folder that stages write."""
    return [name for name in names_in(folder) if stage_of(name) is not None]


def state_of(path: Path, entry: Entry) -> FileState:
    """Whether a file has the content that is listed, or the content that was to be replaced."""
    if not path.exists():
        return "missing"
    if not path.is_file():
        return "damaged"
    if path.name in LOGS:
        return "whole" if _is_whole_log(path, entry) else "damaged"
    return "whole" if file_digest(path) in (entry.sha256, entry.earlier) else "damaged"


def _unlisted_state(path: Path) -> FileState:
    """A log is listed some lines after its first; until then, the seals of its lines verify it."""
    if path.name not in LOGS:
        return "not listed"
    return state_of(path, Entry(_digest(b""), 0, SEARCH))


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
    places = (folder, folder.parent, folder.parent.parent) if name == HISTORY else ()
    for place in places:
        copy = copy_of(place / RUN)
        try:
            request = read_json(place / RUN) if copy is None else parse_json(copy.encode())
        except (UnreadableFile, ValueError):
            continue
        if isinstance(request, Mapping):
            return zlib.crc32(json.dumps([request.get(each) for each in ESTIMATE_FIELDS]).encode())
    return 0


def _is_whole_log(path: Path, entry: Entry) -> bool:
    """Whether a log begins with what is listed, and every line after that is sealed and intact.

    An incomplete last line does not count. Lines without a seal are those of an older version, which are listed.
    """
    if path.stat().st_size < entry.bytes or file_digest(path, entry.bytes) != entry.sha256:
        return False
    with open_file(path) as file:
        file.seek(entry.bytes)
        key = seal_key(path.parent, path.name)
        return all(SEALED.fullmatch(line) and is_intact(line, key) for line in file if line.endswith(b"\n"))


def file_digest(path: Path, length: int | None = None) -> str:
    """The checksum of a file, or of its first bytes."""
    return str(_hash_of(path, length).hexdigest())


def _hash_of(path: Path, length: int | None = None) -> Any:
    found = hashlib.sha256()
    left = path.stat().st_size if length is None else length
    with open_file(path) as file:
        while left > 0 and (part := file.read(min(CHUNK, left))):
            left -= len(part)
            found.update(part)
    return found


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _entry_json(entry: Entry) -> dict[str, Any]:
    """An entry without the fields that are empty."""
    return {name: value for name, value in entry.to_json().items() if value not in ("", None)}


# -- listing ----------------------------------------------------------------------------------------------------------


class Listing:
    """Keeps the manifest of one folder up to date while files are written there.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._current: dict[str, str] = {}  # the checksums of the files that were written here
        self._keys: dict[str, int] = {}  # what the lines of each log are sealed with
        self._logs: dict[str, tuple[Any, int]] = {}  # the running checksum and the length of each log

    @property
    def is_kept(self) -> bool:
        """Whether the folder has a manifest."""
        return (self.folder / MANIFEST).exists()

    def seal(self, name: str, line: bytes) -> bytes:
        """A line of a log as it is written. Logs other than a history are sealed if the folder has a manifest."""
        if name != HISTORY and not self.is_kept:
            return line
        if name not in self._keys:
            self._keys[name] = seal_key(self.folder, name)
        return sealed(line, self._keys[name])

    def expect(self, name: str, content: bytes) -> None:
        """List the content of a file that is replaced next."""
        stage = stage_of(name)
        if stage is None or not (self.is_kept or name in FIRST_FILES):
            return
        manifest = usable_manifest(self.folder) or Manifest()
        digest = _digest(content)
        known = manifest.entries.get(name)
        if known is None or known.sha256 != digest or known.bytes != len(content):
            earlier = self._digest_before(name)
            entry = Entry(digest, len(content), stage, "" if earlier == digest else earlier, _copy(name, content))
            self._save(manifest.with_entries({**self._grown(manifest), name: entry}))
        self._current[name] = digest
        self._logs.pop(name, None)

    def add(self, *names: str) -> None:
        """List files that others have written; those that are not there are left out of the manifest."""
        manifest = usable_manifest(self.folder)
        if manifest is None:
            return
        entries = {name: entry for name in names if (entry := entry_of(self.folder / name)) is not None}
        self._save(manifest.without(names).with_entries(entries))

    def forget(self, *names: str) -> None:
        """Take files out of the manifest."""
        manifest = usable_manifest(self.folder)
        if manifest is not None and manifest.entries.keys() & set(names):
            self._save(manifest.without(names))
        for name in names:
            self._current.pop(name, None)
            self._logs.pop(name, None)

    def bind(self, counts: tuple[int, ...]) -> None:
        """Record the structure that the files of a training belong to."""
        manifest = usable_manifest(self.folder)
        if manifest is not None and manifest.counts != counts:
            self._save(replace(manifest, counts=counts))

    def begin(self) -> None:
        """List all files as they are, in a folder without a usable manifest."""
        entries = {name: entry for name in staged_files(self.folder) if (entry := entry_of(self.folder / name))}
        self._save(Manifest(entries))

    def appended(self, name: str, line: bytes) -> None:
        """Include a line that was appended to a log; the next change of the manifest lists it."""
        length = (self.folder / name).stat().st_size
        known = self._logs.get(name)
        if known is None or known[1] + len(line) != length:  # the first line, or an incomplete one was removed
            self._logs[name] = (_hash_of(self.folder / name, length), length)
            return
        known[0].update(line)
        self._logs[name] = (known[0], length)

    def _grown(self, manifest: Manifest) -> dict[str, Entry]:
        """The entries of the logs that have grown."""
        found = {}
        for name, (running, length) in self._logs.items():
            known = manifest.entries.get(name)
            stage = stage_of(name)
            if stage is not None and (known is None or known.bytes != length):
                content = read_bytes(self.folder / name) if name in COPIED else b""
                found[name] = Entry(running.hexdigest(), length, stage, copy=_copy(name, content))
        return found

    def _digest_before(self, name: str) -> str:
        """The checksum of the file that is replaced; empty if there is none."""
        path = self.folder / name
        if not path.is_file():
            return ""
        return self._current.get(name) or file_digest(path)

    def _save(self, manifest: Manifest) -> None:
        replace_file(self.folder / MANIFEST, manifest.text().encode())


def entry_of(path: Path) -> Entry | None:
    """The entry of a file as it is; None if it is not a file that a stage writes."""
    stage = stage_of(path.name)
    if stage is None or not path.is_file():
        return None
    length = path.stat().st_size
    content = read_bytes(path) if path.name in COPIED and length <= MAX_COPY else b""
    return Entry(file_digest(path), length, stage, copy=_copy(path.name, content) if content else None)


def _copy(name: str, content: bytes) -> str | None:
    """The copy of a file that the manifest holds, if it is of that kind and small."""
    if name not in COPIED or len(content) > MAX_COPY:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
