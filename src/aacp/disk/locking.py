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
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from aacp.disk.failures import absolute, writing_errors
from aacp.disk.folders import LOCK, FolderLock, create_folder, held_locks, open_folder, open_own_file
from aacp.disk.parsing import parse_json
from aacp.disk.reading import AnyPath
from aacp.errors import RunLocked

MAX_HOLDER = 4096  # bytes that are read of the holder's description
MAX_COMMAND = 200  # characters of the holder's command


@contextmanager
def locked(folder: AnyPath) -> Iterator[None]:
    """Keep other processes from writing to a folder, until the block ends or this process does.

    A folder that is not there is created, and removed again if nothing was written to it.
    """
    created = create_folder(folder)
    lock = _acquired(absolute(folder))
    held_locks.append(lock)
    try:
        _describe_holder(lock.descriptor)
        yield
    finally:
        if lock in held_locks:  # a forked process has removed and closed it
            _remove_unused(lock, created)
            _release(lock)


def _acquired(folder: Path) -> FolderLock:
    """The lock on a folder, which this process holds from now on."""
    while True:
        with writing_errors(folder / LOCK):
            with open_folder(folder) as place:
                lock = FolderLock(folder, open_own_file(folder / LOCK, place))
            try:
                fcntl.flock(lock.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if lock.is_current:
                    return lock
                os.close(lock.descriptor)  # the file was deleted between opening and locking it
            except BlockingIOError:
                holder = _holder(lock.descriptor)
                os.close(lock.descriptor)
                raise RunLocked(
                    f"Another process is writing to {folder}: {holder}. Wait for it, or choose another folder."
                ) from None


def _remove_unused(lock: FolderLock, created: list[Path]) -> None:
    """Remove the folders that were created for the lock, the innermost first, if they hold nothing but the lock."""
    if not created or not lock.is_current:
        return
    with suppress(OSError):
        if os.listdir(lock.folder) == [LOCK]:
            os.unlink(lock.folder / LOCK)
            for folder in created:
                os.rmdir(folder)  # which fails if another process has put something there


def _release(lock: FolderLock) -> None:
    held_locks.remove(lock)
    with suppress(OSError):
        if _is_own(lock.descriptor):
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
    for lock in held_locks:
        with suppress(OSError):
            os.close(lock.descriptor)
    held_locks.clear()


os.register_at_fork(after_in_child=_close_copies)
