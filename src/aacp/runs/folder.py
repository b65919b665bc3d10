"""RunFolder: the files of one run, written so that a crash loses at most the work in progress.

A file is replaced as a whole or not at all. A log only grows, and its last line may be incomplete. One process writes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aacp.errors import InvalidOption, RunLocked, RunMismatch
from aacp.runs.manifest import Listing, copy_of
from aacp.runs.sealing import is_intact, sealed, unsealed


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            file = next(place for place in (self.path, *self.path.parents) if os.path.lexists(place))
            raise InvalidOption(
                f"A run cannot be kept in {self.path}, since {file} is a file. "
                "Name a folder that exists or can be created."
            ) from None
        self._is_locked = False
        self.listing = Listing(self.path, self._replace)

    def __fspath__(self) -> str:
        return str(self.path)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The folder at a path; a RunFolder is returned unchanged, so that its lock stays valid."""
        return path if isinstance(path, RunFolder) else cls(path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing here; the system releases the lock even if this process is killed.

        The lock is re-entrant: a pipeline locks its folder, and the search that it runs locks it again.
        """
        if self._is_locked:
            yield
            return
        with (self.path / ".lock").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunLocked(
                    f"Another process is writing to {self.path}. Wait for it, or choose another folder."
                ) from None
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def write_json(self, name: str, data: Any) -> None:
        """Replace a file, atomically: a reader sees the old one or the new one."""
        self.write_text(name, json.dumps(data) + "\n")

    def write_text(self, name: str, text: str) -> None:
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Replace a file, and list it in the manifest if the folder has one."""
        self.listing.expect(name, content)
        self._replace(name, content)

    def write_log(self, name: str, records: Iterable[Any]) -> None:
        """Replace a log by the lines of some records."""
        self.write_bytes(name, b"".join(map(self._line, records)))

    def _line(self, record: Any) -> bytes:
        """The line of a record in a log; in a folder with a manifest it is sealed."""
        line = json.dumps(record).encode()
        return (sealed(line) if self.listing.is_kept else line) + b"\n"

    def _replace(self, name: str, content: bytes) -> None:
        temporary = self.path / f".{name}.{os.getpid()}"
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)

    def read_json(self, name: str) -> Any | None:
        """The content of a file, or None if there is no such file.

        If the file is not what the manifest lists, and the manifest has a copy, it is the content of the copy.
        """
        path = self.path / name
        copy = copy_of(path)
        if copy is None and not path.exists():
            return None
        try:
            return json.loads(path.read_text() if copy is None else copy)
        except json.JSONDecodeError as error:
            raise RunMismatch(
                f"{path} is not JSON: {error}. Put it back from a copy, or choose another folder; aacp check says what "
                "is whole."
            ) from None

    def append(self, name: str, record: Any) -> None:
        """Add a record to a log, one line of JSON."""
        with (self.path / name).open("ab+") as file:
            # An incomplete line, left by a crash, would merge with the one that follows it.
            if file.tell() and not _ends_line(file.fileno()):
                file.truncate(_length_of_whole_lines((self.path / name).read_bytes()))
            line = self._line(record)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.listing.appended(name, line)

    def read_log(self, name: str) -> list[Any]:
        """The records of a log; an incomplete last line, left by a crash, is skipped."""
        path = self.path / name
        if not path.exists():
            return []
        content = path.read_bytes()
        lines = content[: _length_of_whole_lines(content)].splitlines()
        for number, line in enumerate(lines, 1):
            if not is_intact(line):
                raise RunMismatch(
                    f"Line {number} of {path} is damaged. The same command as before leaves it out and does again what "
                    "it recorded; aacp check says what is whole."
                )
        return [unsealed(json.loads(line)) for line in lines]


def _ends_line(descriptor: int) -> bool:
    return os.pread(descriptor, 1, os.fstat(descriptor).st_size - 1) == b"\n"


def _length_of_whole_lines(content: bytes) -> int:
    return content.rfind(b"\n") + 1
