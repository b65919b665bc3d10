"""Faults of the system at the n-th call that changes files: a kill, or an error such as "No space left on device".

Counted are calls on files below one folder: opening for writing, fsync, rename, removal, creation of folders, and
truncation. A kill at an fsync leaves half of what was written since the last one, as a crash of the machine would. The
calls are seen by an audit hook of Python, and by replacements of `os.write` and `os.fsync`, which have no audit event.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Audit events that announce a change, with the positions of the paths in their arguments.
CHANGES = {"os.rename": (0, 1), "os.remove": (0,), "os.mkdir": (0,), "os.rmdir": (0,), "os.truncate": (0,),
           "os.link": (0, 1), "os.symlink": (1,)}  # fmt: skip
KILL = "kill"
KILL_PARENT = "kill-parent"  # in a worker: its launcher is killed, which must end the worker, too


class Injection:
    """Counts the calls that change files below a folder, and lets one of them fail.

    Args:
        fault: "kill", "kill-parent", or the name of an errno.
        at: the number of the call that fails, from 1; 0 lets none fail.
        lasting: whether all later calls fail too, as on a full disk.
        below: the folder.
        log: a file for the names of the counted calls.
    """

    def __init__(self, fault: str, at: int, lasting: bool, below: str, log: Path) -> None:
        self.fault = fault
        self.at = at
        self.lasting = lasting
        self.below = os.path.realpath(below) if below else ""
        self.count = 0
        self.synced: dict[tuple[int, int], int] = {}  # the size of each file when it was last opened or synchronised
        self._log = log
        self._is_busy = False

    def install(self) -> None:
        """Begin to count; there is no end but that of the process."""
        self._descriptor = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        sys.addaudithook(self._audit)
        self._wrap("fsync", is_sync=True)
        self._wrap("write", is_sync=False)

    def _wrap(self, name: str, is_sync: bool) -> None:
        original: Callable[..., Any] = getattr(os, name)

        def replaced(descriptor: Any, *arguments: Any) -> Any:
            number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
            path = self._path_of(number)
            if path is None:
                return original(descriptor, *arguments)
            if not is_sync:
                self._remember_size(number, only_first=True)
            self._tick(f"{name} {path}", number if is_sync else None)
            found = original(descriptor, *arguments)
            if is_sync:
                self._remember_size(number)
                self._tick(f"after {name} {path}")
            return found

        setattr(os, name, replaced)

    def _remember_size(self, descriptor: int, only_first: bool = False) -> None:
        """Record how much of a file is on disk; `only_first` keeps what is recorded already."""
        found = os.fstat(descriptor)
        if not only_first or (found.st_dev, found.st_ino) not in self.synced:
            self.synced[found.st_dev, found.st_ino] = found.st_size

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._is_busy:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, (str, bytes, os.PathLike)) and isinstance(flags, int) and flags & WRITING:
                self._seen("open", path)
        elif event in CHANGES:
            for place in CHANGES[event]:
                if self._seen(event.removeprefix("os."), arguments[place]):
                    break

    def _seen(self, name: str, path: Any) -> bool:
        """Count a call on a path, if it lies below the folder."""
        try:
            place = os.path.join(
                os.path.realpath(os.path.dirname(os.fsdecode(path))), os.path.basename(os.fsdecode(path))
            )
        except (TypeError, ValueError):
            return False
        if not place.startswith(self.below + os.sep):
            return False
        try:
            found = os.lstat(place)
            self.synced[found.st_dev, found.st_ino] = 0 if name == "open" and not found.st_size else found.st_size
        except OSError:
            pass
        self._tick(f"{name} {os.path.relpath(place, self.below)}")
        return True

    def _path_of(self, descriptor: int) -> str | None:
        """The path of an open file, relative to the folder; None if it lies elsewhere."""
        try:
            place = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            return None
        return os.path.relpath(place, self.below) if place.startswith(self.below + os.sep) else None

    def _tick(self, what: str, synchronised: int | None = None) -> None:
        self.count += 1
        self._is_busy = True
        try:
            if self.at == 0:
                _append(self._descriptor, f"{what}\n".encode())
            is_due = self.count >= self.at > 0 if self.lasting else self.count == self.at
            if not is_due:
                return
            if self.fault == KILL:
                if synchronised is not None:
                    self._tear(synchronised)
                os.kill(os.getpid(), signal.SIGKILL)
            if self.fault == KILL_PARENT:
                os.kill(os.getppid(), signal.SIGKILL)
                return
            if not what.startswith("after "):
                number = getattr(errno, self.fault)
                raise OSError(number, os.strerror(number), what.partition(" ")[2])
        finally:
            self._is_busy = False

    def _tear(self, descriptor: int) -> None:
        """Leave half of what was written since the file was last synchronised."""
        found = os.fstat(descriptor)
        kept = self.synced.get((found.st_dev, found.st_ino), 0)
        if found.st_size > kept:
            try:
                os.ftruncate(descriptor, (kept + found.st_size) // 2)
            except OSError:  # the descriptor of a folder, or of a file that is open for reading
                return


_append = os.write  # the original, before it is replaced
