"""RunFolder: the files of one run, written so that a crash loses at most the work in progress.

A file is replaced as a whole or not at all. A log only grows, and its last line may be incomplete. One process writes.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aacp.errors import InvalidOption, RunLocked, RunMismatch


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
        temporary = self.path / f".{name}.{os.getpid()}"
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)

    def read_json(self, name: str) -> Any | None:
        """The content of a file, or None if there is no such file."""
        path = self.path / name
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text())
        except json.JSONDecodeError as error:
            raise RunMismatch(f"{path} is not JSON: {error}. Remove it, or choose another folder.") from None

    def append(self, name: str, record: Any) -> None:
        """Add a record to a log, one line of JSON."""
        with (self.path / name).open("ab+") as file:
            # An incomplete line, left by a crash, would merge with the one that follows it.
            if file.tell() and not _ends_line(file.fileno()):
                file.truncate(_length_of_whole_lines((self.path / name).read_bytes()))
            file.write(json.dumps(record).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def read_log(self, name: str) -> list[Any]:
        """The records of a log; an incomplete last line, left by a crash, is skipped."""
        path = self.path / name
        if not path.exists():
            return []
        content = path.read_bytes()
        lines = content[: _length_of_whole_lines(content)].splitlines()
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError as error:
            raise RunMismatch(f"{path} has a line that is not JSON: {error}. Repair or remove it.") from None


def _ends_line(descriptor: int) -> bool:
    return os.pread(descriptor, 1, os.fstat(descriptor).st_size - 1) == b"\n"


def _length_of_whole_lines(content: bytes) -> int:
    return content.rfind(b"\n") + 1
