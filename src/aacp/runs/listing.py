"""Listing: keeps the manifest of a folder up to date while files are written there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from aacp.disk.reading import file_hash, read_bytes, sha256_of
from aacp.disk.writing import replace_file
from aacp.runs.files import CHECKPOINT, COPIED, GRAPH, HISTORY, RUN, TRAINING_REQUEST, stage_of, staged_files
from aacp.runs.manifest import MANIFEST, Entry, Manifest, digest, usable_manifest
from aacp.runs.verification import seal_key, sealed

# A folder has a manifest from the first of these files on.
FIRST_FILES = (RUN, TRAINING_REQUEST, GRAPH, CHECKPOINT)
MAX_COPY = 1 << 20  # bytes of a copy; a larger file has none


class Listing:
    """Keeps the manifest of one folder up to date while files are written there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._current: dict[str, str] = {}  # the checksums of the files that were written here
        self._keys: dict[str, int] = {}  # what the lines of each log are sealed with
        self._logs: dict[str, tuple[Any, int]] = {}  # the running checksum and the length of each log

    @property
    def is_kept(self) -> bool:
        """Whether the folder has the manifest of a run; a file of this name may be that of an export, or the user's."""
        has_manifest, *has_first = ((self.folder / name).exists() for name in (MANIFEST, *FIRST_FILES))
        return has_manifest and (any(has_first) or usable_manifest(self.folder) is not None)

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
        now = digest(content)
        known = manifest.entries.get(name)
        if known is None or known.sha256 != now or known.bytes != len(content):
            earlier = self._digest_before(name)
            entry = Entry(now, len(content), stage, "" if earlier == now else earlier, _copy(name, content))
            self._save(manifest.with_entries({**self._grown(manifest), name: entry}))
        self._current[name] = now
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
            self._logs[name] = (file_hash(self.folder / name, length), length)
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
        return self._current.get(name) or sha256_of(path)

    def _save(self, manifest: Manifest) -> None:
        replace_file(self.folder / MANIFEST, manifest.text().encode())


def entry_of(path: Path) -> Entry | None:
    """The entry of a file as it is; None if it is not a file that a stage writes."""
    stage = stage_of(path.name)
    if stage is None or not path.is_file():
        return None
    length = path.stat().st_size
    content = read_bytes(path) if path.name in COPIED and length <= MAX_COPY else b""
    return Entry(sha256_of(path), length, stage, copy=_copy(path.name, content) if content else None)


def _copy(name: str, content: bytes) -> str | None:
    """The copy of a file that the manifest holds, if it is of that kind and small."""
    if name not in COPIED or len(content) > MAX_COPY:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
