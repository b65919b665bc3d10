"""Writing: the only place that creates, replaces, extends and removes files.

A file is replaced as a whole or not at all: it is written under a temporary name that nobody can guess, brought to the
disk, and renamed. A log grows by whole lines. No link is followed at the name of a file, nor at a folder below one that
this process has locked.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from aacp.disk.failures import absolute, writing_errors
from aacp.disk.folders import DIRECTORY, MAX_DEPTH, open_folder, open_own_file, sync_folder
from aacp.disk.reading import AnyPath, kind_of
from aacp.errors import DiskError

TEMPORARY = re.compile(r"\..*\.[0-9a-f]{16}\.part")
OLD_TEMPORARY = re.compile(r"\.\w[\w-]*\.(json|jsonl|safetensors|html)\.\d+")  # .NAME.PID, of earlier versions
MAX_SHOWN_NAME = 40  # characters of a file's name in the name of its temporary file
BLOCK = 1 << 14  # bytes of a log that are read at a time, backwards from its end
CREATE = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_cleaned: set[Path] = set()  # folders in which this process has looked for leftovers


# -- files ------------------------------------------------------------------------------------------------------------


def replace_file(path: AnyPath, content: bytes) -> None:
    """Write a file as a whole: a reader sees the old content or the new, also after a crash."""
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: AnyPath) -> Iterator[BinaryIO]:
    """A temporary file to write to. It gets the name `path` if the block succeeds, and is removed if it fails."""
    with _place(path) as (target, folder):
        _require_replaceable(target, folder)
        _remove_leftovers_once(target.parent)
        name = _temporary_name(target.name)
        descriptor = os.open(name, CREATE | os.O_RDWR, 0o666, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                _mark_alive(descriptor)
                yield file
                file.flush()
                os.fsync(descriptor)
                os.rename(name, target.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)
            raise
        sync_folder(folder)


def require_place(path: AnyPath) -> None:
    """Reject the path of a file that could not be replaced, before long work on its content begins."""
    with _place(path) as (target, folder):
        _require_replaceable(target, folder)


def _require_replaceable(path: Path, folder: int) -> None:
    """Reject a device, a pipe or a folder: a renamed file would take its place, and /dev/null would be lost."""
    try:
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise DiskError(f"{path} is {kind_of(mode)}, not a file. Give the path of a file, or choose another folder.")


def append_line(path: AnyPath, line: bytes) -> None:
    """Add a line to a log and bring it to the disk, in a time that does not depend on the length of the log.

    An incomplete last line, left by a crash, is cut off first. If the line cannot be written, the log is as before.
    """
    with _place(path) as (target, folder), _log(target, folder) as log:
        length = _length_of_whole_lines(log)
        os.ftruncate(log, length)
        try:
            _write_all(log, line.rstrip(b"\n") + b"\n")
            os.fsync(log)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(log, length)
            raise
        if length == 0:
            sync_folder(folder)


def remove_file(path: AnyPath) -> None:
    """Remove a file or a link, if it is there."""
    target = absolute(path)
    with writing_errors(path):
        if os.path.lexists(target):
            with open_folder(target.parent) as folder:
                os.unlink(target.name, dir_fd=folder)
                sync_folder(folder)


@contextmanager
def _place(path: AnyPath) -> Iterator[tuple[Path, int]]:
    """The absolute path of a file, and the descriptor of its folder, in which it is changed."""
    target = absolute(path)
    with writing_errors(path), open_folder(target.parent) as folder:
        yield target, folder


def _temporary_name(name: str) -> str:
    return f".{name[:MAX_SHOWN_NAME]}.{secrets.token_hex(8)}.part"


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def _log(path: Path, folder: int) -> Iterator[int]:
    """The descriptor of a log, which is created if it is not there."""
    descriptor = open_own_file(path, folder, os.O_APPEND)
    try:
        if os.fstat(descriptor).st_nlink > 1:
            # Another name of the same file, for instance in a backup, must not grow with the log.
            replace_file(path, _content(descriptor))
            os.close(descriptor)
            descriptor = open_own_file(path, folder, os.O_APPEND)
        yield descriptor
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        return file.read()


def _length_of_whole_lines(descriptor: int) -> int:
    """The length of a log without an incomplete last line, found by reading backwards from its end."""
    end = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - BLOCK)
        newline = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end = begin
    return 0


# -- folders ----------------------------------------------------------------------------------------------------------


def remove_folder(path: AnyPath) -> None:
    """Remove a folder with all it holds, if it is there. Links inside it are removed, not followed."""
    target = absolute(path)
    with writing_errors(path):
        if os.path.lexists(target):
            with open_folder(target.parent) as folder:
                shutil.rmtree(target)
                sync_folder(folder)


@contextmanager
def temporary_folder(path: AnyPath) -> Iterator[Path]:
    """A folder beside `path` for files that `move_file` then moves into place. It is removed when the block ends."""
    with _place(path) as (target, parent):
        place = target.parent / _temporary_name(target.name)
        os.mkdir(place.name, 0o700, dir_fd=parent)
        descriptor = os.open(place.name, DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        _mark_alive(descriptor)
        yield place
    finally:
        os.close(descriptor)
        shutil.rmtree(place, ignore_errors=True)


def move_file(source: AnyPath, path: AnyPath) -> None:
    """Give a complete file another name in the same file system, in the place of the file that has it."""
    with _place(path) as (target, folder):
        _require_replaceable(target, folder)
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(source, target.name, dst_dir_fd=folder)
        sync_folder(folder)


def move_files(folder: Path, path: Path) -> int:
    """Move all files of a folder beside a path, and return their bytes; the one with the name of the path is last.

    It may refer to the others, which have to be there before it appears.
    """
    files = sorted(folder.iterdir(), key=lambda file: file.name == path.name)
    size = sum(file.stat().st_size for file in files)
    for file in files:
        move_file(file, path.with_name(file.name))
    return size


def rename(path: AnyPath, name: str) -> None:
    """Give whatever has this path another name in the same folder; nothing is opened, and no link is followed."""
    with _place(path) as (target, folder):
        os.rename(target.name, name, src_dir_fd=folder, dst_dir_fd=folder)
        sync_folder(folder)


def remove_leftovers(folder: AnyPath) -> None:
    """Remove the temporary files and folders of writers that were killed, in a locked folder and the folders inside.

    Those of living writers are locked, and stay. Those of older versions are not, but no such writer can be alive.
    """
    top = Path(folder)
    for place, folders, files in os.walk(top):
        for name in [*folders, *files]:
            if TEMPORARY.fullmatch(name) or OLD_TEMPORARY.fullmatch(name):
                _remove_if_abandoned(Path(place) / name)
        is_deep = len(Path(place).relative_to(top).parts) >= MAX_DEPTH
        folders[:] = [] if is_deep else [name for name in folders if not TEMPORARY.fullmatch(name)]


def _remove_leftovers_once(folder: Path) -> None:
    """Remove leftovers in a folder that may never be locked, when this process first writes there."""
    if folder not in _cleaned:
        _cleaned.add(folder)
        for name in os.listdir(folder):
            if TEMPORARY.fullmatch(name):
                _remove_if_abandoned(folder / name)


def _mark_alive(descriptor: int) -> None:
    """Lock a temporary file or folder, so that `remove_leftovers` of other processes sees that its writer is alive."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _remove_if_abandoned(path: Path) -> None:
    with suppress(OSError):  # whatever cannot be removed disturbs nobody
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                shutil.rmtree(path)
            else:
                path.unlink()
        finally:
            os.close(descriptor)
