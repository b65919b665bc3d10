"""RunFolder: the files of one run, written so that a crash loses at most the work in progress.

A file is replaced as a whole or not at all. A log only grows, and its last line may be incomplete. One process writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from aacp.disk.locking import locked
from aacp.disk.reading import read_json_lines
from aacp.disk.writing import append_line, remove_file, remove_leftovers, replace_file
from aacp.errors import AACPError, DamagedFile, DamagedRun, InvalidOption, InvalidScore, MissingFile
from aacp.runs.listing import Listing
from aacp.runs.verification import opened, read_restored, seal_key

T = TypeVar("T")
# What reading plain data of an unknown form may raise.
UNREADABLE = (AACPError, ValueError, LookupError, TypeError, AttributeError, AssertionError)


class RunFolder:
    """One run on disk. The folder is created when it is first locked or written to."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._is_locked = False
        self.listing = Listing(self.path)
        nearest = next((place for place in (self.path, *self.path.parents) if os.path.lexists(place)), None)
        if nearest is not None and os.path.isfile(nearest):
            raise InvalidOption(
                f"A run cannot be kept in {self.path}, since {nearest} is a file. "
                "Name a folder that exists or can be created."
            )

    def __fspath__(self) -> str:
        return str(self.path)

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The folder at a path; a RunFolder is returned unchanged, so that its lock stays valid."""
        return path if isinstance(path, RunFolder) else cls(path)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from writing here; the system releases the lock even if this process is killed.

        The lock is re-entrant: a pipeline locks its folder, and the search that it runs locks it again. What killed
        writers left behind is removed. A folder that is created and stays empty is removed.
        """
        if self._is_locked:
            yield
            return
        with locked(self.path):
            remove_leftovers(self.path)
            self._is_locked = True
            try:
                yield
            finally:
                self._is_locked = False

    def write_json(self, name: str, data: Any) -> None:
        """Replace a file, atomically: a reader sees the old one or the new one."""
        self.write_text(name, f"{self._json(name, data)}\n")

    def write_text(self, name: str, text: str) -> None:
        self.write_bytes(name, text.encode())

    def write_bytes(self, name: str, content: bytes) -> None:
        """Replace a file, and list it in the manifest if the folder has one."""
        self.listing.expect(name, content)
        replace_file(self.path / name, content)

    def write_log(self, name: str, records: Iterable[Any]) -> None:
        """Replace a log by the lines of some records."""
        self.write_bytes(name, b"".join(self._line(name, record) + b"\n" for record in records))

    def append(self, name: str, record: Any) -> None:
        """Add a record to a log, one line of JSON."""
        line = self._line(name, record)
        append_line(self.path / name, line)
        self.listing.appended(name, line + b"\n")

    def remove(self, *names: str) -> None:
        """Remove files, if they are there, also from the manifest."""
        for name in names:
            remove_file(self.path / name)
            self.listing.forget(name)

    def read(self, name: str, parse: Callable[[Any], T]) -> T | None:
        """What a file holds, parsed from its JSON, or None if there is no such file; see `read_json`."""
        known = self.read_json(name)
        return None if known is None else parse(known)

    def read_json(self, name: str) -> Any | None:
        """The content of a file, or None if there is no such file.

        If the file is not what the manifest lists, and the manifest has a copy, it is the content of the copy.
        """
        try:
            found = read_restored(self.path / name, self._remedy)
        except MissingFile:
            return None
        except DamagedFile as error:
            raise DamagedRun(str(error)) from None
        if found is None:  # which no version of aacp writes, and which would look like a missing file
            raise DamagedRun(f"{self.path / name} is damaged: it holds null. {self._remedy}")
        return found

    def read_log(self, name: str) -> list[Any]:
        """The records of a log; an incomplete last line, left by a crash, is skipped."""
        return list(self.iterate_log(name))

    def iterate_log(self, name: str) -> Iterator[Any]:
        """The records of a log, one at a time, for logs that are long."""
        try:
            parse = partial(opened, key=seal_key(self.path, name))
            yield from read_json_lines(self.path / name, self._remedy, parse)
        except MissingFile:
            return
        except DamagedFile as error:
            raise DamagedRun(str(error)) from None

    @property
    def _remedy(self) -> str:
        return f"Restore it from a copy, or look at what `aacp check {self.path}` says will be done again."

    def _line(self, name: str, record: Any) -> bytes:
        """The line of a record in a log."""
        return self.listing.seal(name, self._json(name, record).encode())

    def _json(self, name: str, data: Any) -> str:
        try:
            return json.dumps(data, allow_nan=False)
        except ValueError:
            raise InvalidScore(
                f"{self.path / name} would hold NaN or infinity, and is not written. Correct the score, loss or cost "
                "that returned it."
            ) from None
