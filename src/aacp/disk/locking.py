"""Locking: one process writes to a folder.

The system releases the lock when its process ends, even if it is killed. The lock lies on the file `.lock`, which holds
who has it. Processes that are forked off close their copy, so that no worker keeps a folder locked.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from aacp.disk.failures import absolute, writing_errors
from aacp.disk.parsing import parse_json
from aacp.disk.reading import AnyPath, kind_of
from aacp.errors import DiskError, RunLocked, RunMismatch

LOCK = ".lock"
MAX_HOLDER = 4096  # bytes that are read of the holder's description
MAX_COMMAND = 200  # characters of the holder's command


@dataclass(eq=False)
class FolderLock:
    """A lock that this process holds.

    Args:
        folder: the absolute path of the locked folder.
        descriptor: the open file `.lock` in it.
    """

    folder: Path
    descriptor: int

    def check(self) -> None:
        """Reject a folder that was deleted, moved or begun anew since it was locked."""
        try:
            found = os.stat(self.folder / LOCK, follow_symlinks=False)
        except OSError:
            found = None
        own = os.fstat(self.descriptor)
        if found is None or (found.st_dev, found.st_ino) != (own.st_dev, own.st_ino):
            raise RunMismatch(
                f"{self.folder} was deleted or replaced while this process was writing to it. Nothing more is written "
                "there: repeat the command, which begins or resumes what the folder now holds."
            )


_held: list[FolderLock] = []


def locks_above(path: Path) -> list[FolderLock]:
    """The locks of this process on the folders that hold an absolute path, the outermost first."""
    found = [lock for lock in _held if path == lock.folder or lock.folder in path.parents]
    return sorted(found, key=lambda lock: len(lock.folder.parts))


@contextmanager
def locked(folder: AnyPath) -> Iterator[None]:
    """Keep other processes from writing to a folder that exists, until the block ends or this process does."""
    place = absolute(folder)
    with writing_errors(place / LOCK):
        descriptor = _opened(place)
    lock = FolderLock(place, descriptor)
    try:
        _acquire(lock)
        _held.append(lock)
        _describe_holder(descriptor)
        yield
    finally:
        _release(lock)


def _opened(folder: Path) -> int:
    """The descriptor of the folder's lock file, which is a regular file of its own and no link."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(folder / LOCK, flags, 0o666)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise DiskError(f"{folder / LOCK} is {kind_of(mode)}, not a file. Choose another folder.")
    return descriptor


def _acquire(lock: FolderLock) -> None:
    try:
        with writing_errors(lock.folder / LOCK):
            try:
                fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunLocked(
                    f"Another process is writing to {lock.folder}: {_holder(lock.descriptor)}. Wait for it, or choose "
                    "another folder."
                ) from None
        lock.check()  # the file may have been deleted between opening and locking it
    except BaseException:
        os.close(lock.descriptor)
        lock.descriptor = -1
        raise


def _release(lock: FolderLock) -> None:
    if lock in _held:  # a forked process has removed and closed it
        _held.remove(lock)
        if _is_own(lock.descriptor):
            with suppress(OSError):
                os.ftruncate(lock.descriptor, 0)
        os.close(lock.descriptor)


def _is_own(descriptor: int) -> bool:
    """Whether the lock file has one name; a hard link may be a file of the user, whose content must stay."""
    return os.fstat(descriptor).st_nlink == 1


def _describe_holder(descriptor: int) -> None:
    """Write who holds the lock into its file. A full disk does not matter: the lock holds without a description."""
    if not _is_own(descriptor):
        return
    holder = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": _command(),
    }
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(holder).encode(), 0)


def _command() -> str:
    """The command line of this process, without the folder of the program."""
    program, *arguments = sys.argv or [sys.executable]
    return shlex.join([Path(program).name, *arguments])[:MAX_COMMAND]


def _holder(descriptor: int) -> str:
    """Who holds the lock, as its file says."""
    try:
        found: Any = parse_json(os.pread(descriptor, MAX_HOLDER, 0))
        words = f"process {found['pid']} on {found['host']} since {found['started']}, {found['command']}"
    except (OSError, ValueError, LookupError, TypeError):
        return "it has not recorded which one it is"
    return "".join(character if character.isprintable() else "?" for character in words)


def _close_copies() -> None:
    """Close the copies of the descriptors in a process that was forked off. The lock stays with its holder."""
    for lock in _held:
        with suppress(OSError):
            os.close(lock.descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_close_copies)
