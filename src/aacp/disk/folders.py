"""Folders: opened so that no link is followed below a folder that this process has locked."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aacp.disk.failures import absolute, writing_errors
from aacp.disk.reading import AnyPath, kind_of, reading_errors
from aacp.errors import DiskError, InvalidOption, RunMismatch

LOCK = ".lock"  # the file that is locked, in the folder that is locked
MAX_DEPTH = 5  # levels of folders that aacp writes: seed, budget, trainings, name, training
MAX_FOLDERS = 20_000  # in a run folder; one with more is, for instance, a whole disk
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(eq=False)
class FolderLock:
    """A lock that this process holds."""

    folder: Path  # absolute
    descriptor: int  # of the open file `.lock` in the folder

    @property
    def is_current(self) -> bool:
        """False if the folder was deleted, moved or begun anew since the file was opened."""
        try:
            found = os.stat(self.folder / LOCK, follow_symlinks=False)
        except OSError:
            return False
        own = os.fstat(self.descriptor)
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def check(self) -> None:
        """Reject a folder that is not the one that was locked."""
        if not self.is_current:
            raise RunMismatch(
                f"{self.folder} was deleted or replaced while this process was writing to it. Nothing more is written "
                "there: repeat the command, which begins or resumes what the folder now holds."
            )


held_locks: list[FolderLock] = []


def locks_above(path: Path) -> list[FolderLock]:
    """The locks of this process on the folders that hold an absolute path, the outermost first."""
    found = [lock for lock in held_locks if path == lock.folder or lock.folder in path.parents]
    return sorted(found, key=lambda lock: len(lock.folder.parts))


def names_in(path: AnyPath) -> list[str]:
    """The names in a folder, sorted. If this process has locked the folder, it must still be the same one."""
    for lock in locks_above(absolute(path)):
        lock.check()
    with reading_errors(path):
        return sorted(os.listdir(path))


def folders_in(top: AnyPath) -> list[Path]:
    """A folder and the folders inside it, sorted, as deep as aacp writes; links are not followed."""
    found: list[Path] = []
    for place, inside, _ in os.walk(top):
        found.append(Path(place))
        if len(found[-1].relative_to(top).parts) >= MAX_DEPTH:
            inside.clear()
        if len(found) + len(inside) > MAX_FOLDERS:
            raise InvalidOption(f"{top} holds more than {MAX_FOLDERS:,} folders. Give the folder of a run.")
    return sorted(found)


def create_folder(path: AnyPath) -> list[Path]:
    """Create a folder and those above it, unless they are there. Returns the new ones, the innermost first."""
    target = absolute(path)
    missing = [place for place in (target, *target.parents) if not os.path.lexists(place)]
    with writing_errors(path), open_folder(target):
        return missing


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """The descriptor of a folder, which is created if it is not there.

    Below a folder that this process has locked, no link is followed, and the locked folder must still be the same.
    """
    locks = locks_above(path)
    for lock in locks:
        lock.check()
    base = locks[0].folder if locks else path
    descriptor = os.open(base, DIRECTORY) if locks else _created(path)
    try:
        for name in path.relative_to(base).parts:
            inner = _entered(name, descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def open_own_file(path: Path, folder: int, flags: int = 0) -> int:
    """The descriptor of a file to read and write, which is created if it is not there. It is regular and not a link.

    Args:
        path: the file.
        folder: the descriptor of its folder.
        flags: further flags of os.open.
    """
    flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path.name, flags, 0o666, dir_fd=folder)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise DiskError(f"{path} is {kind_of(mode)}, not a file. Move it away, or choose another folder.")
    return descriptor


def sync_folder(descriptor: int) -> None:
    """Bring the names in a folder to the disk."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems that cannot do that for folders
            raise


def _created(path: Path) -> int:
    """The descriptor of a folder, created with all missing folders above it."""
    try:
        return os.open(path, DIRECTORY)
    except FileNotFoundError:
        if path == path.parent:
            raise
    parent = _created(path.parent)
    try:
        return _entered(path.name, parent)
    finally:
        os.close(parent)


def _entered(name: str, parent: int) -> int:
    """The descriptor of a folder inside another, which is created if it is not there; a link is rejected."""
    try:
        return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=parent)
            sync_folder(parent)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise
    return os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
